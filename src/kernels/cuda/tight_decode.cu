#include "kernels/cuda/tight_decode.h"

#include "kernels/cuda/tight_decode_steps.h"

namespace deltawire::cuda {
namespace {
Status decode_coded(const TightDecodeWork& work, unsigned width, Stream stream) {
  DW_RETURN_IF_ERROR(find_values(work, width, stream));
  return decode_values(work, width, stream);
}
}  // namespace

Status check_tight(const TightDecodeWork& work, unsigned width, Stream stream) {
  if (work.num_blocks == 0) return {};
  DW_RETURN_IF_ERROR(decode_gaps(work, stream));
  DW_RETURN_IF_ERROR(check_ranks(work, width, stream));
  return decode_coded(work, width, stream);
}

Status write_tight(const TightDecodeWork& work, unsigned width, Stream stream) {
  if (work.num_blocks == 0) return {};
  return write_changes(work, width, stream);
}

Status patch_tight(const TightDecodeWork& work, unsigned width, Stream stream) {
  if (work.num_blocks == 0) return {};
  DW_RETURN_IF_ERROR(decode_gaps(work, stream));
  DW_RETURN_IF_ERROR(decode_coded(work, width, stream));
  return write_changes(work, width, stream);
}

}  // namespace deltawire::cuda
