// Conversions from and to floating point (PTX ISA 9.7.9.21).
#include "vsm/ops/common.h"
#include "vsm/ops/families.h"

namespace tcgen05::vsm {

void decode_float_convert(Decoder& d) { d.fail("this conversion is not implemented"); }

}  // namespace tcgen05::vsm
