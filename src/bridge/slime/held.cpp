#include "bridge/slime/held.h"

#include <algorithm>

#include "base/guard.h"
#include "tensor/text.h"

namespace deltawire {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kTakeAsItIs =
    "; to take the files as they are for version 0, remove .weight_sync from it";

bool is_same_place(const fs::path& a, const fs::path& b) {
  return is_below(a, {b}) && is_below(b, {a});
}

// Tensor for tensor, byte for byte.
Status compare_with_base(const Checkpoint& held, const fs::path& base, const SlimeWork& work) {
  DW_ASSIGN_OR_RETURN(const Checkpoint other, Checkpoint::open(base));
  const auto differs = [&](const std::string& tensor) {
    return conflict(held.path().string() + ": holds a checkpoint that is not " + base.string() +
                    " (tensor " + quote(tensor) +
                    " differs), and no .weight_sync says whose it is; remove it, or name another "
                    "folder");
  };
  if (held.tensors().size() != other.tensors().size()) {
    return conflict(held.path().string() + ": holds a checkpoint of " +
                    std::to_string(held.tensors().size()) + " tensors, " + base.string() + " has " +
                    std::to_string(other.tensors().size()) +
                    ", and no .weight_sync says whose it is; remove it, or name another folder");
  }
  return parallel_try(
      "comparing", work.pool, held.tensors().size(), [&](size_t i, unsigned) -> Status {
        if (work.check) DW_RETURN_IF_ERROR(work.check());
        const TensorView &a = held.tensors()[i].view, &b = other.tensors()[i].view;
        const bool same = a.name == b.name && a.dtype == b.dtype && a.shape == b.shape &&
                          std::equal(a.bytes.begin(), a.bytes.end(), b.bytes.begin());
        return same ? Status() : differs(a.name);
      });
}

// There is no state.json.
Status look_at_new_folder(const SlimeLocal& local, const fs::path& base, bool has_record,
                          const SlimeWork& work, SlimeHeld* held) {
  if (has_record) {
    held->distrust = base_mismatch(local.root.string() +
                                   ": has lost its version: somebody removed state.json, or "
                                   "files that a pull was to finish; remove the folder");
    return {};
  }
  if (!held->checkpoint) return {};  // nothing is there yet
  if (!base.empty()) DW_RETURN_IF_ERROR(compare_with_base(*held->checkpoint, base, work));
  held->version = 0;
  held->proven = true;
  return {};
}

// `edited`: files are not as we left them; none: we do not know how they were left.
Status look_at_version_0(const SlimeLocal& local, const fs::path& base,
                         const std::optional<SlimeRecord>& record,
                         const std::optional<std::string>& edited, SlimeHeld* held) {
  if (!record) {
    held->proven = base.empty();
  } else if (edited) {
    held->distrust = base_mismatch(*edited + std::string(kTakeAsItIs));
  } else if (!base.empty() && record->identity != held->identity) {
    if (record->identity.empty()) return {};
    held->distrust = base_mismatch(local.root.string() + ": version 0 was made from " +
                                   record->source + " as it was, not from " + base.string());
  } else {
    held->proven = true;
  }
  return {};
}

Status look_at_version(const SlimeLocal& local, const SlimeVersion& there,
                       const std::optional<SlimeRecord>& record,
                       const std::optional<std::string>& edited, const SlimeWork& work,
                       SlimeHeld* held) {
  held->identity = there.identity;
  if (record && record->identity != there.identity) {
    held->distrust =
        base_mismatch(local.root.string() + ": holds version " + std::to_string(record->version) +
                      " of another run: " + there.folder.string() +
                      " is not what it was made of (" + record->source + ")");
    return {};
  }
  if (edited) {
    held->distrust =
        base_mismatch(*edited + "; to have it proven by digests of what " + there.folder.string() +
                      " touched, remove " + local.record().string());
    return {};
  }
  if (record) {
    held->proven = true;
    return {};
  }
  const auto& tensors = there.info().tensors;
  if (there.info().full || std::any_of(tensors.begin(), tensors.end(),
                                       [](const ForeignTensor& one) { return !one.checksum; })) {
    held->distrust =
        base_mismatch(local.root.string() + ": nothing proves that it is " + there.folder.string());
    return {};
  }
  held->distrust = prove_slime_version(*held->checkpoint, there, work);
  held->proven = held->distrust.ok();
  const bool not_about_bytes = !held->proven && held->distrust.code() != Code::kBaseMismatch;
  return not_about_bytes ? held->distrust : Status();
}

}  // namespace

Result<SlimeHeld> look_at_slime_local(const SlimeLocal& local, SlimeSource* source,
                                      const fs::path& base, const SlimeWork& work) {
  SlimeHeld held;
  std::optional<SlimeRecord> record = read_slime_record(local);
  Result<Checkpoint> checkpoint = Checkpoint::open(local.root);
  if (checkpoint.ok()) {
    held.checkpoint = std::move(*checkpoint);
  } else if (checkpoint.status().code() != Code::kNotFound) {
    held.distrust = checkpoint.status();
  }
  auto version = read_slime_version(local);
  if (!version.ok()) {
    if (version.status().code() != Code::kCorruption) return version.status();
    held.distrust = version.status();
  }
  if (!held.distrust.ok()) return held;
  held.version = *version;
  if (!base.empty()) {
    DW_ASSIGN_OR_RETURN(held.identity, identity_of_checkpoint(base));
  }
  if (!held.version) {
    DW_RETURN_IF_ERROR(look_at_new_folder(local, base, record.has_value(), work, &held));
    return held;
  }
  if (!held.checkpoint) {
    held.distrust = checkpoint.status();
    return held;
  }
  if (record && record->version != *held.version) {
    if (!record->files.empty() && !find_edited(local.root, record->files)) {
      held.distrust =
          base_mismatch(local.root.string() + ": state.json says version " +
                        std::to_string(*held.version) + ", but the files are those of " +
                        std::to_string(record->version) + ", as a pull left them");
      return held;
    }
    record.reset();  // somebody else's puller went on from where we were
  }
  std::optional<std::string> edited;
  if (record) edited = find_edited(local.root, record->files);
  if (*held.version == 0) {
    DW_RETURN_IF_ERROR(look_at_version_0(local, base, record, edited, &held));
    return held;
  }
  held.identity = record ? record->identity : "";
  const Result<SlimeVersion> there = source->open(*held.version);
  if (there.ok()) {
    DW_RETURN_IF_ERROR(look_at_version(local, *there, record, edited, work, &held));
  } else if (edited) {
    held.distrust = base_mismatch(*edited);
  } else if (record && !is_same_place(record->source, source->folder())) {
    held.distrust =
        base_mismatch(local.root.string() + ": holds version " + std::to_string(*held.version) +
                      " of " + record->source + ", and " + source->folder().string() +
                      " has no such version any more that could prove it is the same");
  }
  return held;
}

}  // namespace deltawire
