// A delta on disk, opened and checked.
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

// All parts of a delta as one. Payloads are views into mapped files that the Delta keeps alive.
struct Delta {
  struct Entry {
    DeltaEntry entry;
    Bytes payload;
    std::string place;  // "part-00000.safetensors, tensor "w"": for messages
  };
  DeltaInfo info;
  std::vector<Entry> entries;  // sorted by tensor, then by box
  uint64_t size_bytes = 0;     // of all files
  // Set when a part was opened by itself though an index beside it names several: it is not all.
  size_t num_siblings = 0;
  std::vector<std::shared_ptr<MappedFile>> files;

  // Io when a file was written to, or cut short, since it was opened.
  Status check_unchanged() const {
    for (const auto& file : files) DW_RETURN_IF_ERROR(file->check_unchanged());
    return {};
  }
};

// `path` is a part, or a folder with an index. Checks every part against the index (size, sha-256),
// its own checksum and its siblings; a tensor may come in several entries only as boxes that do not
// overlap.
Result<Delta> open_delta(const std::filesystem::path& path);

// A part on disk and what messages call it: the object it was fetched from, say.
struct PartFile {
  std::filesystem::path path;
  std::string name;
  PartContents contents = PartContents::kAll;
};
// The parts of one version of a chain, or of one hop record: there is no index, a manifest or a hop
// record has named them and vouched for their bytes. Checked like those of a folder, but for size
// and sha-256, which are the caller's to check. No parts are a delta without entries.
Result<Delta> open_delta_parts(const std::vector<PartFile>& parts, ThreadPool* pool = nullptr);

// Whether `path` looks like a delta rather than a checkpoint, without checking it. So does a
// delta's index, and a folder of parts that has lost it: open_delta() says what is wrong.
bool looks_like_delta(const std::filesystem::path& path);

}  // namespace deltawire
