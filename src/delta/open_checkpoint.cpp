#include "delta/open_checkpoint.h"

#include "base/temporary.h"
#include "delta/delta_reader.h"
#include "format/checkpoint_files.h"
#include "tensor/sharded_index.h"

namespace deltawire {

Result<Checkpoint> open_checkpoint(const std::filesystem::path& path) {
  if (is_packed_file(path.filename().string())) {
    return invalid_argument(path.string() +
                            ": a packed file of a store; `deltawire pull` makes a " +
                            "checkpoint of it");
  }
  if (looks_like_delta(path)) {
    return invalid_argument(path.string() + ": a delta, not a checkpoint");
  }
  std::error_code error;
  if (path.filename() == kIndexFileName && !std::filesystem::is_directory(path, error)) {
    return invalid_argument(path.string() + ": the index of a checkpoint; give its folder, " +
                            folder_of(path).string());
  }
  return Checkpoint::open(path);
}

}  // namespace deltawire
