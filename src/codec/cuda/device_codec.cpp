#include "codec/cuda/device_codec.h"

#include <algorithm>
#include <map>

#include "codec/checks.h"
#include "codec/cuda/device_parts.h"
#include "codec/cuda/workspace.h"
#include "kernels/tight_math.h"

namespace deltawire::cuda {
namespace {

// Besides those that go both ways there is one that is only encoded here, and one that is only
// decoded: whole arrays are encoded elsewhere (exponents_encode.h).
Status check_codec(CodecId codec, CodecId one_way) {
  if (codec == CodecId::kGaps || codec == CodecId::kTight || codec == one_way) return {};
  const Codec* known = find_codec(codec);
  return unsupported(
      "codec " + std::string(known == nullptr ? "of a newer version" : known->name()) +
      " on a GPU; gaps, tight and " + std::string(find_codec(one_way)->name()) + " run there");
}

Status check_layout(Layout layout, NewKind kind) {
  DW_RETURN_IF_ERROR(check_array(layout, 0));
  if (kind == NewKind::kMarkedFp8 && layout.width != 1) {
    return invalid_argument("marked elements have one byte");
  }
  if ((kind == NewKind::kF32AsBf16 || kind == NewKind::kF16AsBf16) && layout.width != 2) {
    return invalid_argument("wider floats are compared with bf16 arrays only");
  }
  return {};
}

// Arrays of a single block go to the host, which has no marks.
Status check_pair(CodecId codec, const DevicePair& pair) {
  if (codec == CodecId::kTight && pair.kind == NewKind::kMarkedFp8 &&
      pair.num_elements <= uint64_t{1} << tight::kBlockLog2) {
    return invalid_argument("marked elements of a single block");
  }
  if (pair.kind == NewKind::kMarkedFp8 && pair.layout.columns % 32 != 0) {
    return invalid_argument("marked elements in rows that are no multiple of 32");
  }
  return check_layout(pair.layout, pair.kind);
}

// Counts and tables of an array that is encoded with `tight`, roughly.
constexpr uint64_t kTightArrayBytes = uint64_t{64} << 10;

// Patches that are worked on together: of one codec and width.
using PatchGroups = std::map<std::pair<CodecId, uint8_t>, std::vector<NumberedPatch>>;

Result<PatchGroups> group_patches(std::span<const DevicePatch> patches) {
  PatchGroups groups;
  for (size_t i = 0; i < patches.size(); ++i) {
    const DevicePatch& patch = patches[i];
    DW_RETURN_IF_ERROR(
        check_codec(patch.codec, CodecId::kExponents).at("patch " + std::to_string(i)));
    DW_RETURN_IF_ERROR(check_layout(patch.layout, NewKind::kSame));
    if (patch.codec != CodecId::kTight && !patch.regions.empty()) {
      return invalid_argument("patch " + std::to_string(i) + ": regions are for tight alone");
    }
    if (patch.codec != CodecId::kExponents) {
      if (patch.payload.empty()) continue;  // nothing changed
      if (patch.num_elements == 0) {
        return corruption("patch " + std::to_string(i) + ": changes of an empty array");
      }
    }
    groups[{patch.codec, patch.layout.width}].push_back({patch, i});
  }
  return groups;
}

Status run(const PatchGroups& groups, const DeviceOptions& given, bool write, Stream stream) {
  Workspace own;
  DeviceOptions options = given;
  if (options.workspace == nullptr) options.workspace = &own;
  for (const auto& [kind, group] : groups) {
    Status status = kind.first == CodecId::kTight
                        ? apply_tight_patches(group, options, write, stream)
                    : kind.first == CodecId::kExponents
                        ? apply_exponents_patches(group, less_tables(options, 0), write, stream)
                        : apply_lists_patches(group, less_tables(options, 0), write, stream);
    if (!status.ok()) {
      options.workspace->settle(stream);
      return status;
    }
  }
  return {};
}

}  // namespace

DeviceOptions less_tables(const DeviceOptions& options, uint64_t num_bytes) {
  DeviceOptions less = options;
  const uint64_t held = std::max<uint64_t>(num_bytes, options.workspace->table_bytes());
  less.scratch_bytes -= std::min<uint64_t>(options.scratch_bytes / 2, held);
  less.scratch_bytes = less.scratch_bytes / 4096 * 4096;  // slots are aligned
  less.workspace->limit(Workspace::kSlots, less.scratch_bytes);
  return less;
}

Result<std::vector<DeviceEncoded>> encode(CodecId codec, std::span<const DevicePair> pairs,
                                          const DeviceOptions& given, Stream stream) {
  DW_RETURN_IF_ERROR(check_codec(codec, CodecId::kAdaptive));
  Workspace own;
  DeviceOptions options = given;
  if (options.workspace == nullptr) options.workspace = &own;
  std::map<std::pair<uint8_t, NewKind>, std::vector<size_t>> groups;
  for (size_t i = 0; i < pairs.size(); ++i) {
    DW_RETURN_IF_ERROR(check_pair(codec, pairs[i]));
    if (pairs[i].num_elements != 0) groups[{pairs[i].layout.width, pairs[i].kind}].push_back(i);
  }
  std::vector<DeviceEncoded> out(pairs.size());
  if (options.new_digests) {  // of those without elements
    for (DeviceEncoded& one : out) one.new_digest = digest_of(DigestKind::kSum128, {});
  }
  for (const auto& [kind, members] : groups) {
    std::vector<DevicePair> group;
    for (const size_t i : members) group.push_back(pairs[i]);
    // Those of a single block have no tables there.
    const auto with_tables = std::count_if(group.begin(), group.end(), [](const DevicePair& pair) {
      return tiling_of(pair).size() > 1;
    });
    Result<std::vector<DeviceEncoded>> encoded =
        codec == CodecId::kTight
            ? encode_tight(group, less_tables(options, uint64_t(with_tables) * kTightArrayBytes),
                           stream)
            : encode_lists(codec, group, less_tables(options, 0), stream);
    if (!encoded.ok()) {
      options.workspace->settle(stream);
      return encoded;
    }
    for (size_t k = 0; k < members.size(); ++k) out[members[k]] = std::move((*encoded)[k]);
  }
  return out;
}

Status apply(std::span<const DevicePatch> patches, const DeviceOptions& options, Stream stream) {
  DW_ASSIGN_OR_RETURN(const PatchGroups groups, group_patches(patches));
  // One group checks itself before it writes.
  if (groups.size() > 1 && options.all_or_nothing) {
    DW_RETURN_IF_ERROR(run(groups, options, false, stream));
  }
  Status status = run(groups, options, true, stream);
  if (status.ok() || options.all_or_nothing || options.lists != nullptr) return status;
  return Status(status.code(), status.message() + "; arrays may have been patched in part");
}

Status check(std::span<const DevicePatch> patches, const DeviceOptions& options, Stream stream) {
  DW_ASSIGN_OR_RETURN(const PatchGroups groups, group_patches(patches));
  return run(groups, options, false, stream);
}

}  // namespace deltawire::cuda
