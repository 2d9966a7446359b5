#include "replica/overwrite.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/guard.h"
#include "base/mapping.h"
#include "base/sync_point.h"
#include "replica/impl.h"
#include "replica/local_file.h"

namespace deltawire {
namespace {

constexpr uint64_t kOverwrittenPieceBytes = uint64_t{1} << 20;
constexpr uint64_t kComparedBytes = 4096;  // compared and written in units of this size
constexpr double kInMemory = 0.9;          // share of the files' bytes
constexpr uint64_t kMostSteps = 64;        // each needs a manifest to be read
constexpr uint64_t kSampledEvery = uint64_t{8} << 20, kSampledBytes = uint64_t{256} << 10;

// A range of a tensor with its new contents.
struct Stretch {
  const CheckpointTensor* tensor = nullptr;
  uint64_t offset = 0;  // in the tensor
  Bytes contents;
  bool compare = false;  // most bytes are unchanged
  bool last = false;     // of its tensor
};

// Whether nearly all bytes are in memory and need not be read from disk. Checks samples, because
// files are cached in long ranges.
bool is_in_memory(const Checkpoint& checkpoint) {
  double bytes = 0, resident = 0;
  for (const CheckpointFile& file : checkpoint.files()) {
    for (uint64_t at = 0; at < file.bytes.size(); at += kSampledEvery) {
      const uint64_t size = std::min<uint64_t>(kSampledBytes, file.bytes.size() - at);
      bytes += double(size);
      resident += double(size) * resident_share(file.bytes.data() + at, size);
    }
  }
  return resident >= kInMemory * bytes;
}

// Valid until this thread's next call.
Bytes copy_of(Bytes contents) {
  thread_local std::vector<uint8_t> copy(kOverwrittenPieceBytes);
  copy_out(contents.data(), copy.data(), contents.size());
  return {copy.data(), contents.size()};
}

// Writes only what differs, so that other pages stay clean.
void copy_differences(Bytes contents, MutableBytes held) {
  const Bytes now = copy_of(contents);
  for (size_t at = 0; at < held.size(); at += kComparedBytes) {
    const size_t size = std::min<size_t>(kComparedBytes, held.size() - at);
    if (std::memcmp(held.data() + at, now.data() + at, size) != 0) {
      std::memcpy(held.data() + at, now.data() + at, size);
    }
  }
}

// Empty if a tensor is not held in this form.
std::vector<Stretch> stretches_of(const Checkpoint& held, std::span<const NewContents> changed) {
  std::vector<Stretch> stretches;
  for (const NewContents& tensor : changed) {
    const CheckpointTensor* const found = held.find(tensor.view.name);
    if (found == nullptr || !same_form(found->view, tensor.view) ||
        found->view.bytes.size() != tensor.view.bytes.size()) {
      return {};
    }
    const Bytes all = tensor.view.bytes;
    const bool sparse = !touches_most_pages(tensor.num_changed, all.size());
    for (uint64_t at = 0, size = 0; at < all.size(); at += size) {
      const uint64_t offset = found->offset + at;  // ranges end at page boundaries of the file
      size = std::min(kOverwrittenPieceBytes - offset % kOverwrittenPieceBytes, all.size() - at);
      stretches.push_back({found, at, all.subspan(at, size), sparse, at + size == all.size()});
    }
  }
  return stretches;
}

Result<FileStamps> write_stretches(const Checkpoint& held, const std::vector<Stretch>& stretches,
                                   const FileStamps& stamps, ThreadPool* pool) {
  PatchedFiles files(held);
  const bool in_memory = is_in_memory(held);
  // All files are opened, and have their space, before the first byte is written.
  for (const Stretch& stretch : stretches) {
    if (stretch.last) DW_RETURN_IF_ERROR(files.to_write(*stretch.tensor).status());
  }
  DW_RETURN_IF_ERROR(
      parallel_try("overwriting", pool, stretches.size(), [&](size_t i, unsigned) -> Status {
        const Stretch& stretch = stretches[i];
        DW_ASSIGN_OR_RETURN(const MutableBytes all, files.to_write(*stretch.tensor));
        const MutableBytes own = all.subspan(stretch.offset, stretch.contents.size());
        if (stretch.compare) {
          copy_differences(stretch.contents, own);
        } else if (!in_memory) {
          DW_RETURN_IF_ERROR(
              files.write_at(*stretch.tensor, stretch.offset, copy_of(stretch.contents)));
        } else {
          map_all(own, nullptr);
          copy_out(stretch.contents.data(), own.data(), own.size());
        }
        if (stretch.last) DW_SYNC_POINT("replica: tensor overwritten");
        return {};
      }));
  DW_RETURN_IF_ERROR(files.check_whole());
  DW_ASSIGN_OR_RETURN(FileStamps left, files.mark());
  left.insert(stamps.begin(), stamps.end());
  return left;
}

bool same_sides(const std::map<std::string, HeldSide>& held, const std::vector<SideFile>& wanted) {
  return held.size() == wanted.size() &&
         std::all_of(wanted.begin(), wanted.end(), [&](const SideFile& file) {
           const auto found = held.find(file.name);
           return found != held.end() && found->second.sha256 == file.sha256.hex();
         });
}

}  // namespace

Result<std::optional<Checkpoint>> ReplicaCore::open_as_left() {
  std::optional<Checkpoint> none;
  DW_RETURN_IF_ERROR(check_folder());
  if (!state || unfinished || unsettled || !damage.empty() || options.copy_on_write) return none;
  if (state->replica.patching_to || find_edited(layout.root, state->weights)) return none;
  Result<Checkpoint> held = open_own_checkpoint(layout.root, state->weight_names());
  if (!held.ok()) return none;
  return std::optional(std::move(*held));
}

// Whether deltas lead from the held version to `next`, and only weights change.
Result<bool> ReplicaCore::is_plain_way(const VersionRecord& next) {
  const uint64_t from = state->replica.version, to = next.manifest.version;
  if (to <= from || to - from > kMostSteps) return false;
  if (!same_sides(state->sides, next.manifest.files)) return false;
  DW_ASSIGN_OR_RETURN(VersionRecord before, chain->version(from));
  if (before.digest.hex() != state->replica.manifest) return false;
  for (uint64_t version = from + 1; version <= to; ++version) {
    VersionRecord step = next;
    if (version != to) {
      DW_ASSIGN_OR_RETURN(step, chain->version(version));
    }
    const Manifest& manifest = step.manifest;
    if (manifest.kind != VersionKind::kDelta || manifest.parent != before.digest ||
        manifest.schema.name != before.manifest.schema.name) {
      return false;
    }
    before = std::move(step);
  }
  return true;
}

Result<bool> ReplicaCore::overwrite(uint64_t version, std::span<const NewContents> changed) {
  DW_ASSIGN_OR_RETURN(const std::optional<Checkpoint> held, open_as_left());
  if (!held) return false;
  DW_ASSIGN_OR_RETURN(const VersionRecord next, chain->version(version));
  DW_ASSIGN_OR_RETURN(const bool plain, is_plain_way(next));
  if (!plain) return false;
  const std::vector<Stretch> stretches = stretches_of(*held, changed);
  if (stretches.empty()) return false;

  LocalState patching = *state;
  patching.replica.patching_to = version;
  DW_RETURN_IF_ERROR(save(std::move(patching)));
  damage = layout.root.string() + ": writing version " + std::to_string(version) +
           " over it was not finished";
  DW_SYNC_POINT("replica: overwriting begins");
  DW_ASSIGN_OR_RETURN(FileStamps left, write_stretches(*held, stretches, state->weights, &pool));
  DW_SYNC_POINT("replica: overwritten");
  JournalRecord record;
  record.run = next.manifest.run;
  record.version = version;
  record.manifest = next.digest.hex();
  record.state = next.manifest.state.hex();
  DW_RETURN_IF_ERROR(record_version(record, std::move(left), state->sides));
  return true;
}

Result<bool> overwrite(Replica* replica, uint64_t version, std::span<const NewContents> changed) {
  return replica->impl().overwrite(version, changed);
}

void offer_files(Replica* replica, PlainFiles files) { replica->impl().at_hand = std::move(files); }

}  // namespace deltawire
