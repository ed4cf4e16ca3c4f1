#include "vsm/module.h"

#include <algorithm>

#include "vsm/decode.h"
#include "vsm/parser.h"

namespace tcgen05::vsm {
namespace {

constexpr size_t kMaxInstructions = size_t{1} << 20;  // of all kernels

}  // namespace

LoadedModule::LoadedModule(std::string text) : module_(parse(std::move(text))) {
  place_variables();
  size_t instructions = 0;
  for (const Function& f : module_->functions) {
    if (!f.entry || !f.defined) continue;
    const Program& p = programs_.emplace(f.name, Linker(*module_, f).run()).first->second;
    if ((instructions += p.code.size()) > kMaxInstructions)
      throw LoadError("the kernels have more than " + std::to_string(kMaxInstructions) +
                      " instructions, functions counted once per kernel that calls them");
  }
}

void LoadedModule::place_variables() {
  uint64_t size = 0;
  auto in_memory = [](const Variable& v) { return v.space == Space::global || v.space == Space::constant; };
  for (Variable& v : module_->variables) {
    if (!in_memory(v)) continue;
    uint64_t align = std::max<uint64_t>(v.align, 16);
    size = (size + align - 1) / align * align;
    v.offset = kModuleWindow + size;
    size += v.bytes;
    if (size > (uint64_t{1} << 31)) throw LoadError("the module's variables are larger than 2 GiB");
  }
  storage_.reset(static_cast<uint8_t*>(std::calloc(std::max<uint64_t>(size, 1), 1)));
  if (!storage_) throw LoadError("no memory for the module's variables");
  storage_bytes_ = size;
  for (const Variable& v : module_->variables) {
    if (!in_memory(v)) continue;
    uint8_t* at = storage_.get() + (v.offset - kModuleWindow);
    std::copy(v.init.begin(), v.init.end(), at);
    for (const Relocation& r : v.relocations) {
      if (!r.variable || !in_memory(*r.variable))
        throw LoadError("initial value of '" + v.name +
                        "' is the address of something that is not in global memory");
      uint64_t value = r.variable->offset + static_cast<uint64_t>(r.addend);
      std::memcpy(at + r.at, &value, static_cast<size_t>(std::min(r.bytes, 8)));
    }
  }
}

std::vector<std::string> LoadedModule::kernels() const {
  std::vector<std::string> names;
  for (const Function& f : module_->functions)
    if (f.entry && f.defined) names.push_back(f.name);
  return names;
}

const Program& LoadedModule::program(const std::string& kernel) const {
  auto found = programs_.find(kernel);
  if (found != programs_.end()) return found->second;
  std::string list;
  for (const std::string& name : kernels()) list += (list.empty() ? "" : ", ") + name;
  throw LoadError("no kernel '" + kernel + "' in the module; it has: " + (list.empty() ? "none" : list));
}

void LoadedModule::add_variables(GlobalMemory& memory) {
  memory.add_at(kModuleWindow, storage_.get(), storage_bytes_, true, "variables of the module");
}

}  // namespace tcgen05::vsm
