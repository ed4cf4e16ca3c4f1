// The part of an opcode that decides what the instruction does: shared by every executor.
#pragma once

#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tcgen05 {

enum class Kind : uint8_t { f16, tf32, f8f6f4, i8, mxf8f6f4, mxf4, mxf4nvf4 };

inline constexpr std::array<std::string_view, 7> kKindNames = {"f16",      "tf32", "f8f6f4",  "i8",
                                                               "mxf8f6f4", "mxf4", "mxf4nvf4"};

// `.collector::a::C` and `.collector::bI::C`: a reuse hint, without effect on results.
enum class Collector : uint8_t { unset, fill, use, lastuse, discard };

struct Opcode {
  Kind kind = Kind::f16;
  int cta_group = 1;
  bool ws = false;
  int scale_vec = 0;  // scale bytes per row and K step (1, 2 or 4); 0 unless block scaled
  Collector collector = Collector::unset;
  int collector_buffer = 0;  // I of collector::bI, with .ws only

  bool block_scaled() const { return scale_vec != 0; }
};

// Parses the spellings that `mma` offers (PTX ISA 9.7.16.10); throws std::invalid_argument.
Opcode parse_opcode(std::string_view text);

}  // namespace tcgen05
