#include "kernels/cuda/tight_decode.h"

#include "kernels/cuda/tight_decode_steps.h"

namespace deltawire::cuda {
namespace {

template <class Scan>
Status scan_between(TightDecodeStreams streams, const Scan& scan) {
  DW_RETURN_IF_ERROR(order_after(streams.scans, streams.chains));
  DW_RETURN_IF_ERROR(scan(streams.scans));
  return order_after(streams.chains, streams.scans);
}

Status decode_coded(const TightDecodeWork& work, unsigned width, TightDecodeStreams streams) {
  if (work.num_coded == 0) return {};
  DW_RETURN_IF_ERROR(
      scan_between(streams, [&](Stream scans) { return find_values(work, width, scans); }));
  return decode_values(work, width, streams.chains);
}

}  // namespace

Status check_tight(const TightDecodeWork& work, unsigned width, TightDecodeStreams streams) {
  if (work.num_blocks == 0) return {};
  DW_RETURN_IF_ERROR(decode_gaps(work, streams.chains));
  if (work.num_coded < work.num_blocks) {
    DW_RETURN_IF_ERROR(
        scan_between(streams, [&](Stream scans) { return check_ranks(work, width, scans); }));
  }
  return decode_coded(work, width, streams);
}

Status write_tight(const TightDecodeWork& work, unsigned width, TightDecodeStreams streams) {
  if (work.num_blocks == 0) return {};
  return scan_between(streams, [&](Stream scans) { return write_changes(work, width, scans); });
}

Status patch_tight(const TightDecodeWork& work, unsigned width, TightDecodeStreams streams) {
  if (work.num_blocks == 0) return {};
  DW_RETURN_IF_ERROR(decode_gaps(work, streams.chains));
  DW_RETURN_IF_ERROR(decode_coded(work, width, streams));
  return write_tight(work, width, streams);
}

Status list_tight(const TightDecodeWork& work, unsigned width, TightDecodeStreams streams) {
  if (work.num_blocks == 0) return {};
  DW_RETURN_IF_ERROR(decode_gaps(work, streams.chains));
  DW_RETURN_IF_ERROR(decode_coded(work, width, streams));
  return scan_between(streams, [&](Stream scans) { return list_changes(work, width, scans); });
}

}  // namespace deltawire::cuda
