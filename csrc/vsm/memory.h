// Global memory of a launch, and how addresses of all spaces are spelled.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tcgen05::vsm {

// Generic addresses: each space has a window whose low 32 bits are zero, so that a generic shared
// address cut to 32 bits is the shared address. Everything else is global memory.
inline constexpr uint64_t kWindowBits = 40;
inline constexpr uint64_t kSharedWindow = uint64_t{1} << kWindowBits;
inline constexpr uint64_t kLocalWindow = uint64_t{2} << kWindowBits;
inline constexpr uint64_t kParamWindow = uint64_t{3} << kWindowBits;
inline constexpr uint64_t kModuleWindow = uint64_t{4} << kWindowBits;  // .global and .const variables
inline constexpr uint64_t kBufferWindow = uint64_t{16} << kWindowBits;

// Shared addresses: the CTA's rank in its cluster in bits 24 and up, the offset below. The first KiB is
// the system's, as on the chip, so no variable has address 0.
inline constexpr uint32_t kRankShift = 24;
inline constexpr uint32_t kSharedOffsetMask = (1u << kRankShift) - 1;
inline constexpr uint32_t kReservedShared = 1024;
inline constexpr uint32_t kMaxShared = 228 * 1024;  // of a CTA, the reserved KiB included

struct Writer;  // trace.h

struct Region {
  uint64_t base = 0;
  uint64_t bytes = 0;
  uint8_t* host = nullptr;
  bool writable = true;
  std::string name;
  Writer* writers = nullptr;  // per byte, of a watched buffer
};

// Bytes that instructions moved per place, asynchronous ones included.
struct Traffic {
  enum Where : uint8_t { global, shared, tensor, local, param, kCount };
  uint64_t read[kCount] = {}, written[kCount] = {};

  void count(Where where, bool write, uint64_t bytes) { (write ? written : read)[where] += bytes; }
  void add(const Traffic& other) {
    for (int i = 0; i < kCount; ++i) {
      read[i] += other.read[i];
      written[i] += other.written[i];
    }
  }
};
inline constexpr const char* kTrafficNames[Traffic::kCount] = {"global", "shared", "tensor", "local",
                                                               "param"};

// Buffers that a kernel may touch. Built before a launch, constant while it runs.
class GlobalMemory {
 public:
  // Gives the buffer an address of its own, 512-byte aligned, far from its neighbours.
  uint64_t add(void* host, uint64_t bytes, bool writable, std::string name);
  void add_at(uint64_t base, void* host, uint64_t bytes, bool writable, std::string name);

  // Records the last writer of every byte of the region at `base`; false if there is none.
  bool watch(uint64_t base, Writer* writers);

  // The region that holds [address, address + bytes), or nullptr.
  const Region* find(uint64_t address, uint64_t bytes) const;
  // Says where `address` lies in relation to the nearest buffer.
  std::string explain(uint64_t address) const;

 private:
  std::vector<Region> regions_;  // sorted by base
  uint64_t next_ = kBufferWindow;
};

std::string hex(uint64_t value);

}  // namespace tcgen05::vsm
