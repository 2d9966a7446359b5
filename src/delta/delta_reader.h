// Opens and checks a delta on disk.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/thread_pool.h"
#include "deltawire/status.h"
#include "format/delta_part.h"

namespace deltawire {

// All parts of a delta together. Payloads are views into mapped files that the Delta keeps open.
struct Delta {
  struct Entry {
    DeltaEntry entry;
    Bytes payload;
    std::string place;  // "part-00000.safetensors, tensor "w"": for messages
  };
  DeltaInfo info;
  std::vector<Entry> entries;  // sorted by tensor, then by box
  uint64_t size_bytes = 0;     // of all files
  // Not 0 if a single part was opened although an index beside it names several: the delta is
  // incomplete.
  size_t num_siblings = 0;
  std::vector<std::shared_ptr<MappedFile>> files;

  // Io if a file was modified or truncated since it was opened.
  Status check_unchanged() const {
    for (const auto& file : files) DW_RETURN_IF_ERROR(file->check_unchanged());
    return {};
  }
};

// `path` is a part, or a folder with an index. Checks every part against the index (size, sha-256),
// its own checksum and the other parts. A tensor may have several entries only if they are boxes
// that do not overlap.
Result<Delta> open_delta(const std::filesystem::path& path);

// A part on disk, and its name in messages, for example the object it was fetched from.
struct PartFile {
  std::filesystem::path path;
  std::string name;
  PartContents contents = PartContents::kAll;
};
// Opens the parts of a version or of a hop record. There is no index: a manifest or hop record
// names the parts. Checks them like those of a folder, except for size and sha-256, which the
// caller checks. Without parts the delta has no entries.
Result<Delta> open_delta_parts(const std::vector<PartFile>& parts, ThreadPool* pool = nullptr);

// Whether `path` looks like a delta rather than a checkpoint. Does not validate it. Also true for
// the index of a delta and for a folder of parts without an index; open_delta() then reports the
// problem.
bool looks_like_delta(const std::filesystem::path& path);

}  // namespace deltawire
