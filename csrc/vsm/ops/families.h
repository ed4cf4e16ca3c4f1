// The families that table.cc lists, and what one family lends to another.
#pragma once

#include "vsm/decode.h"

namespace tcgen05::vsm {

Family integer_family();
Family float_family();
Family convert_family();
Family compare_family();
Family move_family();
Family memory_family();
Family control_family();
Family warp_family();
Family barrier_family();
Family mbarrier_family();
Family tcgen05_family();
Family tmem_family();
Family async_copy_family();
Family bulk_copy_family();
Family tensor_copy_family();
Family tensor_map_family();
Family async_store_family();
Family matrix_family();
Family cluster_family();
Family video_family();
Family refused_family();

// Opcodes that exist for integers and for floating point have one row (integer.cc), which hands over here.
void decode_float_arithmetic(Decoder& d, Type t);

}  // namespace tcgen05::vsm
