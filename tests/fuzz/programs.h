// PTX texts to feed to the virtual SM: generated kernels, and damaged ones.
#pragma once

#include <string>
#include <vector>

#include "random.h"

namespace fuzz {

class Programs {
 public:
  // The texts of kernel.ptx and statements.txt.
  Programs(const std::string& kernel, const std::string& statements);

  size_t statements() const { return statements_.size(); }
  // Statement i with alternatives chosen.
  std::string statement(size_t i, Random& r) const;
  // A module with kernel `k(.param .u64 p0, .param .b8 map[128], .param .u32 n)` that runs `body`.
  std::string kernel(const std::string& body) const;
  // A kernel of up to `most` statements.
  std::string make(Random& r, size_t most) const;
  // `text` with some of its tokens damaged, or with something hostile in it.
  std::string damage(std::string text, Random& r) const;
  // Texts that are hostile as a whole: deep nesting, recursion, everything huge.
  std::string hostile(Random& r) const;

 private:
  std::string head_, tail_;
  std::vector<std::string> statements_;
  std::vector<std::string> tokens_;  // all of them, to put where they do not belong
};

}  // namespace fuzz
