// Instructions that are known and not executed, whole families of them: each with its reason.
#include <iterator>

#include "vsm/decode.h"
#include "vsm/ops/families.h"

namespace tcgen05::vsm {
namespace {

constexpr std::string_view kTextures = "textures and surfaces have no memory here";
constexpr std::string_view kWgmma = "sm_90a only; this chip has tcgen05.mma in its place";
constexpr std::string_view kStack = "the stack of a thread has a fixed size here";
constexpr std::string_view kVideo = "scalar video instructions are emulated by software since sm_50";

constexpr Entry kEntries[] = {
    {"tex", refused, kTextures},     {"tld4", refused, kTextures},      {"txq", refused, kTextures},
    {"istypep", refused, kTextures}, {"suld", refused, kTextures},      {"sust", refused, kTextures},
    {"sured", refused, kTextures},   {"suq", refused, kTextures},       {"wgmma", refused, kWgmma},
    {"stacksave", refused, kStack},  {"stackrestore", refused, kStack}, {"alloca", refused, kStack},
    {"vadd", refused, kVideo},       {"vsub", refused, kVideo},         {"vabsdiff", refused, kVideo},
    {"vmin", refused, kVideo},       {"vmax", refused, kVideo},         {"vshl", refused, kVideo},
    {"vshr", refused, kVideo},       {"vmad", refused, kVideo},         {"vset", refused, kVideo},
};

}  // namespace

Family refused_family() { return {"refused", kEntries, std::size(kEntries)}; }

}  // namespace tcgen05::vsm
