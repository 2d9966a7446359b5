// Names and words of TRL's files, which its pull requests 5417 ("v1") and 5937 ("v3") write.
//
//   anchors/step_{v:06d}.safetensors   a whole version: v = 1, and every tenth
//   deltas/step_{v:06d}.safetensors    the changes since the previous version
//     v1: {name}.indices I32, {name}.values
//     v3: {name}.idx, {name}.val; `encoding` raw (I32), gap_delta (U16 or U32), nvcomp_cascaded
//
// A delta names no base and has no checksum. It is assumed to apply to the previous version, and a
// damaged value cannot be detected. The structure is checked as far as possible; only the digests
// of a chain can stop a damaged value. TRL writes no file if nothing changed, and its receivers
// skip a file that they cannot apply.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "dialect/dialect.h"
#include "tensor/safetensors.h"

namespace deltawire::trl {

inline constexpr std::string_view kAnchors = "anchors/";
inline constexpr std::string_view kDeltas = "deltas/";
inline constexpr std::string_view kFormat = "sparse_weight_patch";
inline constexpr std::string_view kV1 = "v1";  // our name for files without `encoding`
inline constexpr std::string_view kRaw = "raw";
inline constexpr std::string_view kGapDelta = "gap_delta";
inline constexpr std::string_view kNvcomp = "nvcomp_cascaded";
inline constexpr std::string_view kFull = "full";

std::string file_name(std::string_view folder, uint64_t version);
// The version of a file in `folder`; none for names that file_name() does not make.
std::optional<uint64_t> parse_file_name(std::string_view folder, std::string_view name);

// The endings of a delta's tensor names, after the parameter's name.
struct Suffixes {
  std::string_view positions, values;
};
inline constexpr Suffixes kSuffixesV1{".indices", ".values"};
inline constexpr Suffixes kSuffixesV3{".idx", ".val"};

// `__metadata__`; all values are text there.
struct Patch {
  bool sparse = false;
  uint64_t model_version = 0;
  uint64_t num_changed_params = 0;
  uint64_t total_changed_elements = 0;
  uint64_t total_elements = 0;
  std::string encoding;                     // kV1 where the file has none
  std::vector<std::string> changed_params;  // v1 alone

  bool v1() const noexcept { return encoding == kV1; }
};

// Corruption names the key; Unsupported an encoding that cannot be read.
Result<Patch> parse_patch(const Metadata& metadata);
Metadata patch_metadata(const Patch& patch);

// As Python's repr() writes a float: 0.0, 0.9619951116253052, 1e-05.
std::string python_float(double value);

// ---- versions

// The versions that have an anchor or a delta, ascending.
Result<std::vector<uint64_t>> list_versions(Store& store);

// TRL writes an anchor or a delta, never both. If both exist, opens the delta if the previous
// version exists too, because the delta is small and followers need it; otherwise the anchor.
Result<std::unique_ptr<ForeignVersion>> open_version(Store& store, uint64_t version);

// Options: encoding gap_delta (default), raw or v1. A whole version becomes an anchor, any other a
// delta.
Result<std::unique_ptr<ForeignWriter>> create_version(std::shared_ptr<Store> store,
                                                      const ForeignDraft& draft,
                                                      const ForeignOptions& options);

}  // namespace deltawire::trl
