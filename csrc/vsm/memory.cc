#include "vsm/memory.h"

#include <algorithm>

namespace tcgen05::vsm {

std::string hex(uint64_t value) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string s;
  do s.insert(s.begin(), kDigits[value & 15]);
  while (value >>= 4);
  return "0x" + s;
}

uint64_t GlobalMemory::add(void* host, uint64_t bytes, bool writable, std::string name) {
  uint64_t base = next_;
  next_ = (base + bytes + 511) / 512 * 512 + (uint64_t{1} << 20);
  add_at(base, host, bytes, writable, std::move(name));
  return base;
}

void GlobalMemory::add_at(uint64_t base, void* host, uint64_t bytes, bool writable, std::string name) {
  if (!bytes) return;
  Region r{base, bytes, static_cast<uint8_t*>(host), writable, std::move(name)};
  auto at = std::upper_bound(regions_.begin(), regions_.end(), base,
                             [](uint64_t b, const Region& x) { return b < x.base; });
  regions_.insert(at, std::move(r));
}

bool GlobalMemory::watch(uint64_t base, Writer* writers) {
  for (Region& r : regions_)
    if (r.base == base) {
      r.writers = writers;
      return true;
    }
  return false;
}

const Region* GlobalMemory::find(uint64_t address, uint64_t bytes) const {
  auto next = std::upper_bound(regions_.begin(), regions_.end(), address,
                               [](uint64_t b, const Region& x) { return b < x.base; });
  if (next == regions_.begin()) return nullptr;
  const Region& r = *(next - 1);
  return address - r.base <= r.bytes && bytes <= r.bytes - (address - r.base) ? &r : nullptr;
}

std::string GlobalMemory::explain(uint64_t address) const {
  const Region* best = nullptr;
  uint64_t distance = ~uint64_t{0};
  bool before = false;
  for (const Region& r : regions_) {
    uint64_t end = r.base + r.bytes;
    uint64_t d = address < r.base ? r.base - address : address >= end ? address - end : 0;
    if (d < distance) {
      distance = d;
      best = &r;
      before = address < r.base;
    }
  }
  if (!best) return "no buffers were given";
  std::string at =
      "buffer '" + best->name + "' of " + std::to_string(best->bytes) + " bytes at " + hex(best->base);
  if (address >= best->base && address < best->base + best->bytes)
    return "byte " + std::to_string(address - best->base) + " of " + at;
  if (distance > (uint64_t{1} << 32)) return "no buffer is near; the nearest is " + at;
  return std::to_string(distance) + " bytes " + (before ? "before the start" : "behind the end") + " of " +
         at;
}

}  // namespace tcgen05::vsm
