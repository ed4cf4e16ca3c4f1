// PTX text to a Module. Grammar of PTX ISA 4 and 5, as nvcc, LLVM and inline assembly write it.
#pragma once

#include <memory>
#include <string>

#include "vsm/syntax.h"

namespace tcgen05::vsm {

// Throws LoadError, with the line, for text that is not PTX. Opcodes are not looked at.
std::unique_ptr<Module> parse(std::string text);

}  // namespace tcgen05::vsm
