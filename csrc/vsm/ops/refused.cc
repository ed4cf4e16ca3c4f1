// Instructions that are known and not executed, whole families of them: each with its reason.
#include <iterator>

#include "vsm/decode.h"
#include "vsm/ops/families.h"

namespace tcgen05::vsm {
namespace {

constexpr std::string_view kTextures = "textures and surfaces have no memory here";
constexpr std::string_view kWgmma = "sm_90a only; this chip has tcgen05.mma in its place";
constexpr std::string_view kStack = "the stack of a thread has a fixed size here";
constexpr std::string_view kVideo = "video instructions are emulated by software since sm_50";

constexpr Entry kEntries[] = {
    {"tex", refused, kTextures},     {"tld4", refused, kTextures},      {"txq", refused, kTextures},
    {"istypep", refused, kTextures}, {"suld", refused, kTextures},      {"sust", refused, kTextures},
    {"sured", refused, kTextures},   {"suq", refused, kTextures},       {"wgmma", refused, kWgmma},
    {"stacksave", refused, kStack},  {"stackrestore", refused, kStack}, {"alloca", refused, kStack},
    {"vadd", refused, kVideo},       {"vsub", refused, kVideo},         {"vabsdiff", refused, kVideo},
    {"vmin", refused, kVideo},       {"vmax", refused, kVideo},         {"vshl", refused, kVideo},
    {"vshr", refused, kVideo},       {"vmad", refused, kVideo},         {"vset", refused, kVideo},
    {"vadd2", refused, kVideo},      {"vsub2", refused, kVideo},        {"vavrg2", refused, kVideo},
    {"vabsdiff2", refused, kVideo},  {"vmin2", refused, kVideo},        {"vmax2", refused, kVideo},
    {"vset2", refused, kVideo},      {"vadd4", refused, kVideo},        {"vsub4", refused, kVideo},
    {"vavrg4", refused, kVideo},     {"vabsdiff4", refused, kVideo},    {"vmin4", refused, kVideo},
    {"vmax4", refused, kVideo},      {"vset4", refused, kVideo},
};

}  // namespace

Family refused_family() { return {"refused", kEntries, std::size(kEntries)}; }

}  // namespace tcgen05::vsm
