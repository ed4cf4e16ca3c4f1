// The fundamental types of PTX (PTX ISA 5.2): one row per type, so that a size or a signedness is stated
// once.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace tcgen05::vsm {

// clang-format off
#define TCGEN05_VSM_TYPES(X)                                                                     \
  X(pred, 1, bits) X(b8, 8, bits) X(u8, 8, uint) X(s8, 8, sint)                                  \
  X(b16, 16, bits) X(u16, 16, uint) X(s16, 16, sint) X(f16, 16, real) X(bf16, 16, real)          \
  X(b32, 32, bits) X(u32, 32, uint) X(s32, 32, sint) X(f32, 32, real) X(tf32, 32, real)          \
  X(f16x2, 32, packed) X(bf16x2, 32, packed) X(u16x2, 32, packed) X(s16x2, 32, packed)           \
  X(u8x4, 32, packed) X(s8x4, 32, packed)                                                        \
  X(b64, 64, bits) X(u64, 64, uint) X(s64, 64, sint) X(f64, 64, real) X(f32x2, 64, packed)       \
  X(b128, 128, bits)
// clang-format on

enum class Type : uint8_t {
#define X(name, size, kind) name,
  TCGEN05_VSM_TYPES(X)
#undef X
      none
};

enum class TypeKind : uint8_t { bits, uint, sint, real, packed, none };

struct TypeRow {
  std::string_view name;
  int bits;
  TypeKind kind;
};

inline constexpr TypeRow kTypeRows[] = {
#define X(name, size, kind) {#name, size, TypeKind::kind},
    TCGEN05_VSM_TYPES(X)
#undef X
        {"none", 0, TypeKind::none}};

constexpr int bits_of(Type t) { return kTypeRows[static_cast<int>(t)].bits; }
constexpr int bytes_of(Type t) { return (bits_of(t) + 7) / 8; }
constexpr TypeKind kind_of(Type t) { return kTypeRows[static_cast<int>(t)].kind; }
constexpr bool is_signed(Type t) { return kind_of(t) == TypeKind::sint; }
constexpr bool is_real(Type t) { return kind_of(t) == TypeKind::real; }
constexpr bool is_integer(Type t) { return kind_of(t) == TypeKind::sint || kind_of(t) == TypeKind::uint; }
constexpr bool is_bits(Type t) { return kind_of(t) == TypeKind::bits && t != Type::pred; }
constexpr std::string_view name_of(Type t) { return kTypeRows[static_cast<int>(t)].name; }

inline std::optional<Type> parse_type(std::string_view name) {
  for (int i = 0; i < static_cast<int>(Type::none); ++i)
    if (kTypeRows[i].name == name) return static_cast<Type>(i);
  return std::nullopt;
}

}  // namespace tcgen05::vsm
