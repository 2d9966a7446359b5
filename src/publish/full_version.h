// A version stored whole: the files of a Hugging Face checkpoint folder, streamed from the tensors.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "deltawire/checkpoint.h"
#include "deltawire/store.h"
#include "deltawire/tensor.h"
#include "diff/hash_state.h"
#include "format/manifest.h"
#include "tensor/safetensors.h"
#include "transfer/upload_queue.h"

namespace deltawire {

// A tensor and the pieces that cover it exactly: the whole tensor, or the boxes of several ranks.
struct WholeTensor {
  struct Piece {
    Box box;
    std::shared_ptr<const Body> contents;
  };
  TensorSpec spec;
  std::vector<Piece> pieces;
};

struct FullFile {
  std::string name;  // in the folder
  std::shared_ptr<const Body> body;
  std::shared_ptr<const Body> plain = {};        // the plain file, if `body` is a packed one
  std::function<Status()> check_unchanged = {};  // called after the upload, if set
};

// A fifth of the size that Hugging Face's writer uses, because each file is hashed by one thread.
inline constexpr uint64_t kShardBytes = 1'000'000'000;

// Creates model.safetensors, or model-00001-of-0000N.safetensors ... with an index if the tensors
// are larger than `shard_bytes`. Tensors named like PEFT's adapters become
// adapter_model.safetensors. The pieces of a tensor may come as several items with its name. Copies
// nothing.
Result<std::vector<FullFile>> lay_out_checkpoint(std::vector<WholeTensor> tensors,
                                                 uint64_t shard_bytes = kShardBytes);
// The files of a checkpoint on disk, as they are. A single file becomes model.safetensors or
// adapter_model.safetensors. If the store or readers do not accept the names, the files are laid
// out anew. `contents`: the contents of the tensors, in order.
Result<std::vector<FullFile>> files_of_checkpoint(const Checkpoint& checkpoint,
                                                  const Contents& contents);

// Packs the weight files that become smaller, and gives them packed names.
Status pack_files(std::vector<FullFile>* files, ThreadPool* pool, const CodedThere& there = {});

uint64_t total_bytes(const std::vector<FullFile>& files);

// Uploads files to a folder of the store, starting in the constructor. If destroyed before finish()
// has succeeded, removes what it put.
class FullUpload {
 public:
  FullUpload(Store& store, std::string folder, std::vector<FullFile> files, PublishClock clock,
             Progress progress);
  ~FullUpload();
  FullUpload(const FullUpload&) = delete;
  FullUpload& operator=(const FullUpload&) = delete;

  Result<std::vector<PartRef>> finish();
  void abandon();
  const std::vector<FullFile>& files() const noexcept { return files_; }
  std::optional<Phase> upload_phase() const {
    return queue_ ? queue_->phase("upload") : std::optional<Phase>();
  }

 private:
  Status put(size_t file, const std::atomic<bool>& stop);

  Store& store_;
  const std::vector<FullFile> files_;
  std::vector<PartRef> parts_;
  std::atomic<uint64_t> read_{0};
  bool finished_ = false;
  std::unique_ptr<UploadQueue> queue_;
};

}  // namespace deltawire
