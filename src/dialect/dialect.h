// Another project's file format: versions of a model as files in a folder or a bucket.
//
// Foreign files are hostile input. Reading one gives a named error or the tensors it describes;
// memory is bounded by the sizes of the files and of the tensors they are applied to.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/thread_pool.h"
#include "deltawire/status.h"
#include "deltawire/store.h"
#include "dialect/checksum.h"
#include "tensor/safetensors.h"

namespace deltawire {

// One tensor of a foreign version.
struct ForeignTensor {
  std::string name;
  // Set if the dialect stores it; always set in a whole version.
  std::optional<DType> dtype;
  std::optional<Shape> shape;
  uint64_t payload_bytes = 0;             // in the file
  std::optional<Checksum> checksum = {};  // of the tensor after the change, where there is one
};

struct ForeignInfo {
  uint64_t version = 0;
  // The version it must be applied to; none: it is whole, or the dialect does not store it (then it
  // is the previous version).
  std::optional<uint64_t> base;
  bool full = false;
  std::string encoding;  // "xor", "overwrite", "indices", ..., "full"
  std::string checksum;  // "xxh3-128", ..., or empty: it has none
  uint64_t num_files = 0, file_bytes = 0;
  std::string content;                 // ForeignFile::sample() of the files, to detect changes
  std::vector<ForeignTensor> tensors;  // sorted by name, each once: those that it changes
};

// An open version whose structure was checked. Thread-safe.
class ForeignVersion {
 public:
  virtual ~ForeignVersion() = default;
  virtual const ForeignInfo& info() const noexcept = 0;
  // Makes the new bytes of `info().tensors[index]` from the old ones, in place, and compares them
  // with the checksum where the version has one. `spec` is what the checkpoint has under that name.
  // A whole version ignores what `bytes` held. Corruption or InvalidArgument names file and tensor;
  // the content is undefined then: callers patch a copy. A pool, where given, may be used.
  virtual Status apply(size_t index, const TensorSpec& spec, MutableBytes bytes,
                       ThreadPool* pool) const = 0;
  // Call after the last apply(): Io, naming the file, if a file has changed since it was opened.
  virtual Status check_unchanged() const { return {}; }
};

// A version to be written.
struct ForeignDraft {
  uint64_t version = 0, base = 0;
  bool full = false;
  std::vector<TensorSpec> tensors;   // that changed; all, where `full`
  std::vector<std::string> removed;  // since the base
  std::vector<std::string> added;    // since the base: new, or of another dtype or shape
  uint64_t model_elements = 0;       // of all tensors of the model, for statistics; 0: not known
};

// Options of a writer. Empty: the dialect's default.
struct ForeignOptions {
  std::string encoding;
  std::string checksum;
  uint64_t buffer_bytes = uint64_t{512} << 20;  // where the dialect cuts its files by size
  uint64_t anchor_every = 10;                   // where the dialect has whole versions in between
};

// Writes one version. One thread.
class ForeignWriter {
 public:
  virtual ~ForeignWriter() = default;
  // Adds the next tensor of the draft. `old_bytes` are empty if the version is full.
  virtual Status add(const TensorSpec& spec, Bytes old_bytes, Bytes new_bytes,
                     ThreadPool* pool) = 0;
  // Completes the version: puts last the file that readers look for. A writer destroyed without it
  // removes its files.
  virtual Status finish() = 0;
};

// Checks that a writer gets the tensors of its draft in order, with bytes of their sizes;
// InvalidArgument names the tensor.
class DraftOrder {
 public:
  explicit DraftOrder(const ForeignDraft& draft) : draft_(draft) {}
  Status next(const TensorSpec& spec, Bytes old_bytes, Bytes new_bytes);
  Status check_all_added() const;
  size_t num_added() const noexcept { return next_; }

 private:
  const ForeignDraft draft_;
  size_t next_ = 0;
};

// A tensor of a file that a writer holds in memory.
struct HeldTensor {
  TensorSpec spec;
  std::vector<uint8_t> bytes;
};
// Puts a safetensors file with these tensors: those of wide elements first, so that each is
// aligned, then by name.
Status put_held(Store& store, const std::string& name, std::vector<HeldTensor> tensors,
                const Metadata& metadata);

// Stateless. `store` is the foreign folder or bucket, not a chain.
class Dialect {
 public:
  virtual ~Dialect() = default;
  virtual std::string_view name() const noexcept = 0;   // "slime"
  virtual std::string_view title() const noexcept = 0;  // "slime generations 2 and 3, miles"
  // Whether `store` holds versions of this dialect. Looks at names and small files alone.
  virtual Result<bool> recognises(Store& store) const = 0;
  // The complete versions, ascending. A version that is still being written is left out as far as
  // the dialect can tell.
  virtual Result<std::vector<uint64_t>> versions(Store& store) const = 0;
  virtual Result<std::unique_ptr<ForeignVersion>> open(Store& store, uint64_t version) const = 0;
  // Whether readers of the dialect need `version` to be written full although its base is
  // available.
  virtual Result<bool> wants_whole(Store&, uint64_t /*version*/, const ForeignOptions&) const {
    return false;
  }
  // Before anything is written: Unsupported if the dialect cannot express the draft (the message
  // names the tensor and a remedy); Conflict if the version exists; InvalidArgument for unknown
  // options.
  virtual Result<std::unique_ptr<ForeignWriter>> create(std::shared_ptr<Store> store,
                                                        const ForeignDraft& draft,
                                                        const ForeignOptions& options) const = 0;
};

std::span<const Dialect* const> all_dialects() noexcept;
const Dialect* find_dialect(std::string_view name) noexcept;  // null when unknown
// The one that recognises what `store` holds; null: none does.
Result<const Dialect*> recognise_dialect(Store& store);

// The dialects that this build has; dialect.cpp lists them.
const Dialect& slime_dialect() noexcept;  // generations 2 and 3, miles
const Dialect& trl_dialect() noexcept;

}  // namespace deltawire
