// A version stored whole: the files of a plain Hugging Face checkpoint directory, streamed from
// where the tensors are.
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

// A tensor, from the pieces that make it up: itself whole, or the boxes of several ranks, which
// cover it exactly.
struct WholeTensor {
  struct Piece {
    Box box;
    std::shared_ptr<const Body> contents;
  };
  TensorSpec spec;
  std::vector<Piece> pieces;
};

struct FullFile {
  std::string name;  // inside the directory
  std::shared_ptr<const Body> body;
  std::shared_ptr<const Body> plain = {};        // of a packed one: the file itself
  std::function<Status()> check_unchanged = {};  // asked when it was put, where it is set
};

// A fifth of what Hugging Face's own writer takes by default: a file is hashed by one thread.
inline constexpr uint64_t kShardBytes = 1'000'000'000;

// model.safetensors, or model-00001-of-0000N.safetensors ... and their index when there is more
// than `shard_bytes`. Tensors with the names of PEFT's adapters make adapter_model.safetensors.
// Pieces of a tensor may come as several items of its name. Nothing is copied.
Result<std::vector<FullFile>> lay_out_checkpoint(std::vector<WholeTensor> tensors,
                                                 uint64_t shard_bytes = kShardBytes);
// A checkpoint on disk, file by file as it is; a single file becomes model.safetensors, or
// adapter_model.safetensors. Names that no object can have, or that readers do not take, make it be
// laid out anew. `contents` are those of its tensors, in their order.
Result<std::vector<FullFile>> files_of_checkpoint(const Checkpoint& checkpoint,
                                                  const Contents& contents);

// All weights among the files for which it pays, under their packed names.
Status pack_files(std::vector<FullFile>* files, ThreadPool* pool, const CodedThere& there = {});

uint64_t total_bytes(const std::vector<FullFile>& files);

// Puts files into a folder of the store, from the moment it is made. Destroyed before finish() has
// succeeded, it takes back what it had put.
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
