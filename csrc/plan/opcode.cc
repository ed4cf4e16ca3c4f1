#include "plan/opcode.h"

#include <optional>
#include <utility>
#include <vector>

namespace tcgen05 {
namespace {

[[noreturn]] void refuse(std::string_view text, const std::string& why) {
  throw std::invalid_argument("opcode '" + std::string(text) + "': " + why);
}

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t dot = text.find('.');
    parts.push_back(text.substr(0, dot));
    if (dot == std::string_view::npos) return parts;
    text.remove_prefix(dot + 1);
  }
}

// The text after `prefix`, or nothing.
std::optional<std::string_view> after(std::string_view text, std::string_view prefix) {
  if (text.substr(0, prefix.size()) != prefix) return std::nullopt;
  return text.substr(prefix.size());
}

// Spellings of the scale vector per kind, with scales per K step (contract 1.3). mxf4nvf4 has no default.
struct ScaleSpelling {
  Kind kind;
  std::string_view name;
  int scales;
  bool is_default = false;
};
constexpr ScaleSpelling kScaleSpellings[] = {
    {Kind::mxf8f6f4, "block32", 1, true}, {Kind::mxf8f6f4, "scale_vec::1X", 1},
    {Kind::mxf4, "block32", 2, true},     {Kind::mxf4, "scale_vec::2X", 2},
    {Kind::mxf4nvf4, "block32", 2},       {Kind::mxf4nvf4, "scale_vec::2X", 2},
    {Kind::mxf4nvf4, "block16", 4},       {Kind::mxf4nvf4, "scale_vec::4X", 4},
};

constexpr std::pair<std::string_view, Collector> kCollectors[] = {
    {"fill", Collector::fill},
    {"use", Collector::use},
    {"lastuse", Collector::lastuse},
    {"discard", Collector::discard},
};

// The modifiers as written, each at most once.
struct Modifiers {
  std::optional<std::string_view> cta_group, kind, scale_vec, collector;
  bool ws = false, block_scale = false;
};

void read_modifier(std::string_view text, std::string_view part, bool first, Modifiers& out) {
  const auto once = [&](std::optional<std::string_view>& slot, std::string_view value) {
    if (slot) refuse(text, "a second ." + std::string(part));
    slot = value;
  };
  const auto flag = [&](bool& slot) {
    if (slot) refuse(text, "a second ." + std::string(part));
    slot = true;
  };
  if (const auto group = after(part, "cta_group::")) {
    once(out.cta_group, *group);
  } else if (const auto kind = after(part, "kind::")) {
    once(out.kind, *kind);
  } else if (const auto collector = after(part, "collector::")) {
    once(out.collector, *collector);
  } else if (after(part, "scale_vec::") || part == "block16" || part == "block32") {
    once(out.scale_vec, part);
  } else if (part == "block_scale") {
    flag(out.block_scale);
  } else if (part == "ws") {
    if (!first) refuse(text, ".ws stands directly after mma, once");
    out.ws = true;
  } else if (part == "sp" || part == "ashift") {
    refuse(text, "." + std::string(part) + " is not offered; dense, .ws and block-scaled opcodes are");
  } else {
    refuse(text, "unknown modifier ." + std::string(part));
  }
}

void read_kind(std::string_view text, const Modifiers& given, Opcode& out) {
  if (!given.kind) refuse(text, "no .kind");
  for (size_t i = 0; i < kKindNames.size(); ++i) {
    if (kKindNames[i] == *given.kind) {
      out.kind = static_cast<Kind>(i);
      return;
    }
  }
  refuse(text, "unknown kind; allowed: f16, tf32, f8f6f4, i8, mxf8f6f4, mxf4, mxf4nvf4");
}

void read_scales(std::string_view text, const Modifiers& given, Opcode& out) {
  std::string allowed;
  for (const ScaleSpelling& spelling : kScaleSpellings) {
    if (spelling.kind != out.kind) continue;
    const bool match = given.scale_vec ? *given.scale_vec == spelling.name : spelling.is_default;
    if (given.block_scale && match) {
      out.scale_vec = spelling.scales;
      return;
    }
    allowed += " .block_scale." + std::string(spelling.name);
  }
  if (!allowed.empty()) refuse(text, "block scale of this kind; allowed:" + allowed);
  if (given.block_scale || given.scale_vec) refuse(text, "this kind has no block scale");
}

void read_collector(std::string_view text, const Modifiers& given, Opcode& out) {
  if (!given.collector) return;
  std::string_view name = *given.collector;
  const size_t colons = name.find("::");
  const std::string_view buffer = name.substr(0, colons);
  const bool known =
      out.ws ? buffer.size() == 2 && buffer[0] == 'b' && buffer[1] >= '0' && buffer[1] <= '3' : buffer == "a";
  if (known && colons != std::string_view::npos) {
    for (const auto& [operation, value] : kCollectors) {
      if (name.substr(colons + 2) != operation) continue;
      out.collector = value;
      out.collector_buffer = out.ws ? buffer[1] - '0' : 0;
      return;
    }
  }
  refuse(text, std::string("collector; allowed: .collector::") + (out.ws ? "b0..b3" : "a") +
                   "::{fill,use,lastuse,discard}");
}

}  // namespace

Opcode parse_opcode(std::string_view text) {
  const std::vector<std::string_view> parts = split(text);
  if (parts.size() < 2 || parts[0] != "tcgen05" || parts[1] != "mma") {
    refuse(text, "expected tcgen05.mma followed by its modifiers");
  }
  Modifiers given;
  for (size_t i = 2; i < parts.size(); ++i) read_modifier(text, parts[i], i == 2, given);
  Opcode out;
  out.ws = given.ws;
  read_kind(text, given, out);
  if (!given.cta_group) refuse(text, "no .cta_group; allowed: .cta_group::1, .cta_group::2");
  if (*given.cta_group != "1" && *given.cta_group != "2") refuse(text, ".cta_group; allowed: 1, 2");
  out.cta_group = *given.cta_group == "1" ? 1 : 2;
  if (out.ws && out.cta_group != 1) refuse(text, ".ws; allowed: .cta_group::1");
  read_scales(text, given, out);
  if (out.ws && out.block_scaled()) refuse(text, ".ws; allowed kinds: f16, tf32, f8f6f4, i8");
  read_collector(text, given, out);
  return out;
}

}  // namespace tcgen05
