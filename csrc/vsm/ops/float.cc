// Floating-point arithmetic (PTX ISA 9.7.3-9.7.5).
#include "vsm/ops/common.h"
#include "vsm/ops/families.h"

namespace tcgen05::vsm {

void decode_float_arithmetic(Decoder& d, Type t) {
  d.fail("type ." + std::string(name_of(t)) + " is not implemented");
}

}  // namespace tcgen05::vsm
