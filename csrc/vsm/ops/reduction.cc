#include "vsm/ops/reduction.h"

#include "vsm/ops/common.h"
#include "vsm/ops/half.h"

namespace tcgen05::vsm {
namespace {

template <class T>
T apply_integer(Reduction op, T old, T b, T c) {
  using U = std::make_unsigned_t<T>;
  switch (op) {
    case Reduction::and_:
      return old & b;
    case Reduction::or_:
      return old | b;
    case Reduction::xor_:
      return old ^ b;
    case Reduction::exch:
      return b;
    case Reduction::add:
      return static_cast<T>(U(old) + U(b));
    case Reduction::inc:
      return U(old) >= U(b) ? T{0} : static_cast<T>(U(old) + 1);
    case Reduction::dec:
      return old == 0 || U(old) > U(b) ? b : static_cast<T>(U(old) - 1);
    case Reduction::min:
      return old < b ? old : b;
    case Reduction::max:
      return old > b ? old : b;
    default:
      return old == b ? c : old;
  }
}

template <class T>
T real_minmax(Reduction op, T a, T b) {
  if (std::isnan(a)) return b;
  if (std::isnan(b)) return a;
  return op == Reduction::min ? std::fmin(a, b) : std::fmax(a, b);
}

uint64_t apply_half(Reduction op, uint16_t a, uint16_t b, bool brain) {
  double x = brain ? bf16_to_float(a) : f16_to_float(a), y = brain ? bf16_to_float(b) : f16_to_float(b);
  double r = op == Reduction::add ? x + y : real_minmax(op, x, y);
  return brain ? to_bf16(r) : to_f16(r);
}

}  // namespace

std::mutex& atomics() {
  static std::mutex m;
  return m;
}

uint64_t reduce(Reduction op, Type t, uint64_t old, uint64_t b, uint64_t c) {
  if (op == Reduction::exch) return b;
  if (op == Reduction::cas) return old == b ? c : old;
  switch (t) {
    case Type::s32:
      return static_cast<uint32_t>(
          apply_integer<int32_t>(op, static_cast<int32_t>(old), static_cast<int32_t>(b), 0));
    case Type::s64:
      return static_cast<uint64_t>(
          apply_integer<int64_t>(op, static_cast<int64_t>(old), static_cast<int64_t>(b), 0));
    case Type::f32: {
      float x = bits_to_float(static_cast<uint32_t>(old)), y = bits_to_float(static_cast<uint32_t>(b));
      return float_to_bits(op == Reduction::add ? x + y : real_minmax(op, x, y));
    }
    case Type::f64: {
      double x = from_slot<double>(old), y = from_slot<double>(b);
      return to_slot<double>(op == Reduction::add ? x + y : real_minmax(op, x, y));
    }
    case Type::f16:
    case Type::bf16:
      return apply_half(op, static_cast<uint16_t>(old), static_cast<uint16_t>(b), t == Type::bf16);
    case Type::f16x2:
    case Type::bf16x2: {
      bool brain = t == Type::bf16x2;
      return apply_half(op, static_cast<uint16_t>(old), static_cast<uint16_t>(b), brain) |
             apply_half(op, static_cast<uint16_t>(old >> 16), static_cast<uint16_t>(b >> 16), brain) << 16;
    }
    default:
      return bits_of(t) == 64
                 ? apply_integer<uint64_t>(op, old, b, 0)
                 : apply_integer<uint32_t>(op, static_cast<uint32_t>(old), static_cast<uint32_t>(b), 0);
  }
}

bool reduction_allowed(Reduction op, Type t) {
  switch (op) {
    case Reduction::and_:
    case Reduction::or_:
    case Reduction::xor_:
      return t == Type::b32 || t == Type::b64;
    case Reduction::exch:
      return t == Type::b32 || t == Type::b64 || t == Type::b128;
    case Reduction::cas:
      return t == Type::b16 || t == Type::b32 || t == Type::b64 || t == Type::b128;
    case Reduction::inc:
    case Reduction::dec:
      return t == Type::u32;
    default:
      return (is_integer(t) && bits_of(t) >= 32) || t == Type::f32 || t == Type::f16 || t == Type::bf16 ||
             t == Type::f16x2 || t == Type::bf16x2 || (t == Type::f64 && op == Reduction::add);
  }
}

Reduction take_reduction(Decoder& d) {
  static constexpr Reduction kOps[] = {Reduction::and_, Reduction::or_, Reduction::xor_, Reduction::add,
                                       Reduction::inc,  Reduction::dec, Reduction::min,  Reduction::max};
  return kOps[d.need_any({"and", "or", "xor", "add", "inc", "dec", "min", "max"})];
}

void reduce_cells(Reduction op, Type t, uint8_t* to, const uint8_t* from, size_t bytes) {
  size_t each = static_cast<size_t>(bytes_of(t));
  for (size_t at = 0; at < bytes; at += each) {
    uint64_t old = 0, value = 0;
    std::memcpy(&old, to + at, each);
    std::memcpy(&value, from + at, each);
    old = reduce(op, t, old, value, 0);
    std::memcpy(to + at, &old, each);
  }
}

}  // namespace tcgen05::vsm
