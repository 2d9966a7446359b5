#include "delta/delta_reader.h"

#include <algorithm>

#include "base/folder.h"
#include "base/guard.h"
#include "format/delta_part.h"
#include "tensor/box.h"
#include "tensor/safetensors.h"
#include "tensor/text.h"

namespace deltawire {
namespace fs = std::filesystem;
namespace {

Result<DeltaPart> parse_file(const std::string& name, const MappedFile& file,
                             PartContents contents = PartContents::kAll) {
  Result<DeltaPart> part = parse_part(file.bytes(), contents);
  if (!part.ok()) return std::move(part).status().at(name);
  return part;
}

Status add_part(const std::string& name, const std::shared_ptr<MappedFile>& file, DeltaPart part,
                Delta* delta) {
  if (delta->files.empty()) {
    delta->info = part.info;
  } else if (part.info.base != delta->info.base || part.info.target != delta->info.target) {
    return corruption(name + ": belongs to another delta than " + delta->files[0]->path().string());
  }
  if (!delta->files.empty()) {
    auto& removed = delta->info.removed;
    removed.insert(removed.end(), part.info.removed.begin(), part.info.removed.end());
  }
  for (PayloadView& view : part.entries) {
    std::string place = name + ", tensor " + quote(view.entry.tensor);
    delta->entries.push_back({std::move(view.entry), view.payload, std::move(place)});
  }
  delta->size_bytes += file->bytes().size();
  delta->files.push_back(file);
  return {};
}

bool has_parts(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / part_name(0), error);
}

Status open_folder(const fs::path& path, Delta* delta) {
  const fs::path index_path = path / kDeltaIndexName;
  std::error_code error;
  if (!fs::exists(index_path, error)) {
    if (looks_like_store(path)) {
      return invalid_argument(path.string() + ": is a store, not a delta");
    }
    return not_found(path.string() + ": " + (has_parts(path) ? "parts of a delta without" : "no") +
                     " " + std::string(kDeltaIndexName));
  }
  DW_ASSIGN_OR_RETURN(const std::string text, read_text_file(index_path, kMaxDeltaIndexBytes));
  auto parsed = parse_delta_index(text);
  if (!parsed.ok()) return std::move(parsed).status().at(index_path.string());
  const DeltaIndex& index = parsed.value();
  for (const DeltaIndexPart& part : index.parts) {
    const fs::path part_path = path / part.name;
    DW_ASSIGN_OR_RETURN(const auto file, MappedFile::open(part_path));
    if (file->bytes().size() != part.size_bytes) {
      return corruption(part_path.string() + ": size: expected " + std::to_string(part.size_bytes) +
                        " bytes, got " + std::to_string(file->bytes().size()));
    }
    const Digest got = digest_of(DigestKind::kSha256, file->bytes());
    if (got != part.sha256) {
      return corruption(part_path.string() + ": sha-256: expected " + part.sha256.hex() + ", got " +
                        got.hex());
    }
    DW_ASSIGN_OR_RETURN(DeltaPart parsed_part, parse_file(part_path.string(), *file));
    DW_RETURN_IF_ERROR(add_part(part_path.string(), file, std::move(parsed_part), delta));
  }
  if (delta->files.empty()) return corruption(index_path.string() + ": names no parts");
  if (index.base != delta->info.base || index.target != delta->info.target) {
    return corruption(index_path.string() + ": names another base or target than its parts");
  }
  delta->size_bytes += text.size();
  return {};
}

// The number of parts in the index beside a part, if the index names this part; else 0.
size_t count_siblings(const fs::path& part) {
  const auto text = read_text_file(folder_of(part) / kDeltaIndexName, kMaxDeltaIndexBytes);
  if (!text.ok()) return 0;
  const auto index = parse_delta_index(*text);
  if (!index.ok() || index->parts.size() < 2) return 0;
  const bool named =
      std::any_of(index->parts.begin(), index->parts.end(),
                  [&](const DeltaIndexPart& one) { return one.name == part.filename(); });
  return named ? index->parts.size() : 0;
}

// Checks that the entries of each tensor have the same form and do not overlap. `entries` are
// sorted by tensor.
Status check_boxes(const std::vector<Delta::Entry>& entries) {
  for (size_t begin = 0, end = 0; begin < entries.size(); begin = end) {
    const DeltaEntry& first = entries[begin].entry;
    for (end = begin + 1; end < entries.size() && entries[end].entry.tensor == first.tensor;
         ++end) {
      const DeltaEntry& entry = entries[end].entry;
      if (!same_form(entry, first)) {
        return corruption(entries[end].place + ": another dtype or shape than in " +
                          entries[begin].place);
      }
      for (size_t other = begin; other < end; ++other) {
        if (overlap(entries[other].entry.box, entry.box)) {
          return corruption(entries[end].place + ": covers elements that " + entries[other].place +
                            " covers too");
        }
      }
    }
  }
  return {};
}

Status sort_entries(std::vector<Delta::Entry>* entries) {
  std::sort(entries->begin(), entries->end(), [](const Delta::Entry& a, const Delta::Entry& b) {
    return std::tie(a.entry.tensor, a.entry.box.offset) <
           std::tie(b.entry.tensor, b.entry.box.offset);
  });
  return check_boxes(*entries);
}

}  // namespace

Result<Delta> open_delta(const fs::path& path) {
  Delta delta;
  std::error_code error;
  if (fs::is_directory(path, error)) {
    DW_RETURN_IF_ERROR(open_folder(path, &delta));
  } else if (path.filename() == kDeltaIndexName) {
    return invalid_argument(path.string() + ": the index of a delta; give its folder, " +
                            folder_of(path).string());
  } else {
    DW_ASSIGN_OR_RETURN(const auto file, MappedFile::open(path));
    DW_ASSIGN_OR_RETURN(DeltaPart part, parse_file(path.string(), *file));
    DW_RETURN_IF_ERROR(add_part(path.string(), file, std::move(part), &delta));
    delta.num_siblings = count_siblings(path);
  }
  DW_RETURN_IF_ERROR(sort_entries(&delta.entries));
  return delta;
}

Result<Delta> open_delta_parts(const std::vector<PartFile>& parts, ThreadPool* pool) {
  std::vector<std::shared_ptr<MappedFile>> files(parts.size());
  std::vector<DeltaPart> parsed(parts.size());
  DW_RETURN_IF_ERROR(
      parallel_try("reading parts", pool, parts.size(), [&](size_t i, unsigned) -> Status {
        DW_ASSIGN_OR_RETURN(files[i], MappedFile::open(parts[i].path));
        DW_ASSIGN_OR_RETURN(parsed[i], parse_file(parts[i].name, *files[i], parts[i].contents));
        return {};
      }));
  Delta delta;
  for (size_t i = 0; i < parts.size(); ++i) {
    DW_RETURN_IF_ERROR(add_part(parts[i].name, files[i], std::move(parsed[i]), &delta));
  }
  DW_RETURN_IF_ERROR(sort_entries(&delta.entries));
  return delta;
}

bool looks_like_delta(const fs::path& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) {
    return fs::exists(path / kDeltaIndexName, error) ||
           (has_parts(path) && looks_like_delta(path / part_name(0)));
  }
  if (path.filename() == kDeltaIndexName) return fs::exists(path, error);
  const auto file = MappedFile::open(path);
  if (!file.ok()) return false;
  const auto view = parse_safetensors((*file)->bytes());
  return view.ok() && find_metadata(view->metadata, "deltawire") != nullptr;
}

}  // namespace deltawire
