// A loaded PTX module: parsed, every kernel decoded, its variables placed.
#pragma once

#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "vsm/machine.h"
#include "vsm/syntax.h"

namespace tcgen05::vsm {

class LoadedModule {
 public:
  // Throws LoadError for text that is not PTX, or that has an instruction which is not executed here.
  explicit LoadedModule(std::string text);

  std::vector<std::string> kernels() const;
  // Throws LoadError when there is no such kernel.
  const Program& program(const std::string& kernel) const;
  // Lets a launch reach the module's .global and .const variables; they keep their values from launch to
  // launch.
  void add_variables(GlobalMemory& memory);
  const Module& syntax() const { return *module_; }

 private:
  void place_variables();

  std::unique_ptr<Module> module_;
  std::map<std::string, Program> programs_;
  std::unique_ptr<uint8_t, void (*)(void*)> storage_{nullptr, std::free};
  uint64_t storage_bytes_ = 0;
};

}  // namespace tcgen05::vsm
