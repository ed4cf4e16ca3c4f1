// A small generator of random numbers: the same on every machine, so that a case has a number.
#pragma once

#include <cstdint>
#include <vector>

namespace fuzz {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15 + 1) {}

  uint64_t next() {  // splitmix64
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
  }
  uint64_t below(uint64_t n) { return n ? next() % n : 0; }
  bool chance(unsigned percent) { return below(100) < percent; }
  template <class T>
  const T& pick(const std::vector<T>& v) {
    return v[below(v.size())];
  }

  // Numbers at which something may overflow.
  int64_t extreme() {
    static const std::vector<uint64_t> kEdges = {
        0,          1,          2,          3,          7,          8,          15,         16,
        31,         32,         33,         63,         64,         127,        128,        255,
        256,        511,        512,        1023,       1024,       4096,       0x7fff,     0x8000,
        0xffff,     0x10000,    0xffffff,   0x1000000,  0x7fffffff, 0x80000000, 0xfffffff0, 0xffffffff,
        1ull << 32, 1ull << 40, 1ull << 47, 1ull << 62, 1ull << 63, ~0ull >> 1, ~0ull};
    uint64_t v = pick(kEdges);
    return static_cast<int64_t>(chance(20) ? next() >> below(64) : chance(20) ? uint64_t{0} - v : v);
  }

 private:
  uint64_t state_;
};

}  // namespace fuzz
