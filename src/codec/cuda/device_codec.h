// Codecs on arrays that live on a GPU. Payloads are the CPU's, byte for byte: what one side writes
// the other reads.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/spare_vectors.h"
#include "base/thread_pool.h"
#include "codec/codec.h"
#include "codec/tiles.h"
#include "kernels/cuda/diff.h"
#include "kernels/cuda/exchange.h"
#include "kernels/cuda/memory.h"

namespace deltawire::cuda {

struct DevicePair {
  Layout layout;
  const void* old_data = nullptr;
  const void* new_data = nullptr;
  uint64_t num_elements = 0;
  // kMarkedFp8: new_data is a MarkedFp8, and `tight` wants more elements than a block has, and rows
  // of a multiple of 32. Others:
  // the layout is bf16's, and new_data is read as wider floats.
  NewKind kind = NewKind::kSame;
};
// The blocks that `tight` makes of it.
inline Tiling tiling_of(const DevicePair& pair) {
  return {choose_tiles(pair.layout, pair.num_elements), pair.layout, pair.num_elements};
}

// Some rows and columns of an array of matrices, in memory of their own.
struct DeviceRegion {
  uint64_t first_row = 0, first_column = 0;  // rows count over all matrices
  uint64_t rows = 0, columns = 0;
  void* data = nullptr;
  uint64_t row_stride = 0;  // in elements, under 2^32

  bool operator==(const DeviceRegion&) const = default;
};

struct DevicePatch {
  Layout layout;
  void* data = nullptr;  // unused with regions
  uint64_t num_elements = 0;
  CodecId codec = CodecId::kTight;
  Bytes payload;  // in host memory; pinned memory is copied faster
  // Of `tight`: what there is of the array; none: all of it. Blocks that touch no region are not
  // looked at; InvalidArgument for those with changes that lie in a region only in part, or in two.
  std::vector<DeviceRegion> regions = {};
};

// Changes of arrays, as lists of an exchange.
struct ChangeLists {
  // Gives memory that the device reaches, aligned to 16 bytes: a piece of each of these sizes.
  std::function<Result<std::vector<uint8_t*>>(std::span<const uint64_t>)> take;
  std::vector<SwapList> lists = {};
};

class Workspace;

struct DeviceOptions {
  size_t scratch_bytes = size_t{256} << 20;  // of device memory, beyond the arrays
  Workspace* workspace = nullptr;            // kept from call to call; null: made for each
  ThreadPool* pool = nullptr;                // for what the host has to do
  SpareVectors* spare = nullptr;             // memory for payloads; null: all of it is new
  // Of device memory, beside the scratch, for what a check of `tight` has decoded: it waits there
  // until it may be written, as far as it has room. None: a quarter of what is free.
  std::optional<uint64_t> keep_bytes = 0;
  // Patches that fit neither the scratch all at once nor what may be kept are decoded twice, so
  // that nothing is written before all of it is known to be good. Without, they are decoded once
  // and written on the way: after a failure any array of the call may be patched, its own in part,
  // and the error says so.
  bool all_or_nothing = true;
  // Of check(): what it finds out is kept for an apply() of the same patches. Of apply(): the
  // patches are those of the last such check(), which has passed them, and nobody has written to
  // their payloads since.
  bool apply_follows = false, as_checked = false;
  // Of apply(): gets sum128 of patched arrays, by the number of the patch, where it is known from
  // what was written: of whole arrays of `tight`, if every block has changes and shares no
  // word with another.
  std::vector<std::optional<Digest>>* patched_digests = nullptr;
  // Of apply(), for `tight` and arrays and regions that take less than 2^32 elements: changes are
  // added to these lists, and nothing is written to arrays.
  ChangeLists* lists = nullptr;
  // encode() says OutOfMemory where a single array needs more than the scratch. Without, an array
  // with that many changes gets more.
  bool within_scratch = false;
  // encode() gives sum128 of new arrays too, from the look at them that it encodes.
  bool new_digests = false;
};

struct DeviceEncoded : Encoded {
  std::optional<Digest> new_digest = {};  // see DeviceOptions::new_digests
};

// For tests: blocks of a `tight` payload that have changes.
struct BlockKinds {
  uint64_t num_blocks = 0;
  uint64_t num_coded = 0;  // with steps other than +1 and -1
  uint64_t num_mixed = 0;  // of those, with classes whose steps are all +1 or -1, too
};
Result<BlockKinds> count_block_kinds(const DevicePatch& patch);

// `gaps` and `tight` are coded on the device. Changes of `adaptive` are found there and
// coded by the host, arrays side by side; Io if somebody wrote to an array meanwhile so that they
// make no sense. Waits for `stream` where the host must decide something, and at the end.
Result<std::vector<DeviceEncoded>> encode(CodecId codec, std::span<const DevicePair> pairs,
                                          const DeviceOptions& options, Stream stream);

// Patches arrays in place, of `gaps`, `tight` and `exponents`. All payloads are checked
// before any array is written, see `all_or_nothing`. Waits for `stream`.
Status apply(std::span<const DevicePatch> patches, const DeviceOptions& options, Stream stream);
// The same up to the first write.
Status check(std::span<const DevicePatch> patches, const DeviceOptions& options, Stream stream);

}  // namespace deltawire::cuda
