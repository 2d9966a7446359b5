// Imports versions from other projects' files (dialects) into chains and exports them again, under
// the same version numbers. docs/dialects.md lists the dialects and their limits.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "deltawire/chain.h"
#include "deltawire/delta.h"
#include "deltawire/publish_options.h"
#include "deltawire/publisher.h"
#include "deltawire/status.h"
#include "deltawire/store.h"

namespace deltawire {

// ---- other projects' versions

struct DialectName {
  std::string name;   // "slime"
  std::string title;  // "slime generations 2 and 3, miles"
};
std::vector<DialectName> dialect_names();

// What a version of another project says of one tensor.
struct ForeignTensorSummary {
  std::string name;
  std::string form;  // "BF16 [2048, 1024]"; empty: the dialect does not tell
  uint64_t payload_bytes = 0;
};

struct ForeignSummary {
  std::string dialect;
  uint64_t version = 0;
  std::optional<uint64_t> base;  // none: it is whole, or the dialect does not tell
  bool full = false;
  std::string encoding, checksum;  // by their names; no checksum: empty
  uint64_t num_tensors = 0, num_files = 0, file_bytes = 0;
  std::vector<ForeignTensorSummary> tensors = {};  // sorted by name
};

// A path that belongs to a dialect: the folder of all versions, or one version in it.
struct ForeignPath {
  std::string dialect, title;
  std::filesystem::path root;
  std::optional<uint64_t> version;  // none: all of them
};
// None: no dialect recognises the path, or it does not exist. Reads only names and small files.
Result<std::optional<ForeignPath>> recognise_foreign(const std::filesystem::path& path);
Result<std::vector<uint64_t>> foreign_versions(
    const ForeignPath& path);  // complete ones, ascending
Result<ForeignSummary> describe_foreign(const ForeignPath& path, uint64_t version);

// Whether a checkpoint equals the state that a version (which must be set) leads to. Each tensor
// that the version names is compared by digest or, without one, by patching a copy.
Result<VerifyReport> verify_foreign(const ForeignPath& version,
                                    const std::filesystem::path& checkpoint,
                                    const ApplyOptions& options);

// ---- import

// Versions `from` ... `to`; none: from the first, to the newest.
struct BridgeRange {
  std::optional<uint64_t> from, to;
};

struct ImportOptions {
  std::string dialect;
  // The checkpoint that the first version is applied to. For a new run only; not needed where the
  // first version is whole.
  std::filesystem::path base = {};
  BridgeRange range = {};
  // Begin a chain with the base though the source has no version yet.
  bool source_may_be_empty = false;
  // Treats a version that is missing although later ones exist as unchanged, since TRL writes no
  // file then. Otherwise it counts as lost.
  bool missing_is_unchanged = false;
  // The source is the one imported so far, moved to another place.
  bool source_moved = false;
  // New tensors are made in memory up to this size, and in a file of the work folder above it. 0: a
  // quarter of the machine's memory.
  uint64_t memory_bytes = 0;
  // `snapshot` must be a folder: it is the work folder, where the model is kept as the chain's head
  // has it. Rebuilt from the chain if it is missing or damaged.
  PublishOptions publish = {};
};

struct ImportedVersion {
  uint64_t version = 0;
  bool base = false;  // it is the checkpoint that the first version is applied to
  // Of the version that was read; none: it is the base, or there is no file of it.
  std::optional<ForeignSummary> source = {};
  PublishReport published = {};
  double read_seconds = 0;  // to read it and patch tensors with it
  double seconds = 0;       // in all
};

// Imports versions under their own numbers, in order and exactly once. The chain's head decides
// what comes next, so the process may be killed at any instant. A version is committed only if all
// of it was read and did not change meanwhile. For one thread at a time.
//
// BaseMismatch: the source, or a tensor of it, does not belong to what the chain holds. NotFound:
// the next version is missing, though later ones are there. Conflict: another imports here.
class Importer {
 public:
  // InvalidArgument: no such dialect, options that do not go together.
  static Result<Importer> open(std::shared_ptr<Store> source, std::shared_ptr<Store> chain,
                               ImportOptions options);
  ~Importer();
  Importer(Importer&&) noexcept;
  Importer& operator=(Importer&&) noexcept;

  // Imports the next version of the source; none: there is none yet, or `range` ends.
  Result<std::optional<ImportedVersion>> next();
  bool done() const noexcept;                     // `range` ends here
  std::optional<uint64_t> head() const noexcept;  // of the chain, after next()
  const std::string& run() const noexcept;

 private:
  struct Impl;
  explicit Importer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// ---- export

struct ExportOptions {
  std::string dialect;
  std::string encoding = {}, checksum = {};     // by their names; empty: the dialect's default
  uint64_t buffer_bytes = uint64_t{512} << 20;  // where the dialect cuts files by size
  BridgeRange range = {};                       // none: from version 1
  bool full = false;                            // every version whole
  // Where the dialect has whole versions in between: every so many; none: as its own writer does.
  std::optional<uint64_t> anchor_every = {};
  // Where the model is kept, as the last exported version has it; per run.
  std::filesystem::path work = {};
  uint64_t memory_bytes = 0;  // as ImportOptions has it: for old tensors
  unsigned threads = 0;
  Progress progress = {};
};

struct ExportedVersion {
  ForeignSummary target;
  std::string note = {};  // what a reader needs to have, once
  double seconds = 0;
};

// Writes versions of a chain as another project's files, in order. Existing versions are checked to
// be of this chain and not written again. May be killed at any instant. For one thread at a time.
//
// Unsupported, before anything of a version is written: what the dialect cannot express. Conflict:
// the target holds another run, or files of others.
class Exporter {
 public:
  static Result<Exporter> open(const Chain& chain, std::shared_ptr<Store> target,
                               ExportOptions options);
  ~Exporter();
  Exporter(Exporter&&) noexcept;
  Exporter& operator=(Exporter&&) noexcept;

  // Exports the next version; none: the chain has no more yet, or `range` ends.
  Result<std::optional<ExportedVersion>> next();
  bool done() const noexcept;
  uint64_t num_skipped() const noexcept;  // that were there

 private:
  struct Impl;
  explicit Exporter(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace deltawire
