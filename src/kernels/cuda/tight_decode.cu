#include "kernels/cuda/tight_decode.h"

#include "kernels/cuda/tight_decode_steps.h"

namespace deltawire::cuda {
Status check_tight(const TightDecodeWork& work, unsigned width, Stream stream) {
  if (work.num_blocks == 0) return {};
  DW_RETURN_IF_ERROR(decode_gaps(work, stream));
  DW_RETURN_IF_ERROR(check_ranks(work, width, stream));
  DW_RETURN_IF_ERROR(locate_ranks(work, width, kFindOthers, stream));
  return decode_values(work, width, stream);
}

Status write_tight(const TightDecodeWork& work, unsigned width, Stream stream) {
  if (work.num_blocks == 0) return {};
  DW_RETURN_IF_ERROR(locate_ranks(work, width, kWriteUnits, stream));
  return write_values(work, width, stream);
}

Status patch_tight(const TightDecodeWork& work, unsigned width, Stream stream) {
  if (work.num_blocks == 0) return {};
  DW_RETURN_IF_ERROR(decode_gaps(work, stream));
  DW_RETURN_IF_ERROR(locate_ranks(work, width, kFindOthers | kWriteUnits, stream));
  DW_RETURN_IF_ERROR(decode_values(work, width, stream));
  return write_values(work, width, stream);
}

}  // namespace deltawire::cuda
