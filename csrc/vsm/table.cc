// The table of instructions: the one list of families.
#include "vsm/decode.h"
#include "vsm/ops/families.h"

namespace tcgen05::vsm {

const std::vector<Family>& instruction_table() {
  static const std::vector<Family> families = {
      integer_family(),     float_family(),     convert_family(),     compare_family(),
      move_family(),        memory_family(),    control_family(),     warp_family(),
      barrier_family(),     mbarrier_family(),  tcgen05_family(),     tmem_family(),
      async_copy_family(),  bulk_copy_family(), tensor_copy_family(), tensor_map_family(),
      async_store_family(), cluster_family(),   matrix_family(),      video_family(),
      refused_family(),
  };
  return families;
}

}  // namespace tcgen05::vsm
