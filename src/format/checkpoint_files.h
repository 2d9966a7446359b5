// The rules for files in a checkpoint's folder. Publishers check them before they upload anything,
// readers before they write anything. docs/format.md, "Files beside the weights".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "deltawire/status.h"

namespace deltawire {

inline constexpr size_t kMaxFileNameBytes = 255;
inline constexpr size_t kMaxWeightsFiles = 100'000;
inline constexpr size_t kMaxSideFiles = 10'000;
inline constexpr uint64_t kMaxSideBytes = uint64_t{1} << 30;  // of all of them

inline constexpr std::string_view kSafetensorsSuffix = ".safetensors";
// Appended to the name of a safetensors file in a store whose tensors are coded (packed_file.h).
inline constexpr std::string_view kPackedSuffix = ".packed";
bool is_packed_file(std::string_view name);
// The name without kPackedSuffix; other names are returned unchanged.
std::string_view plain_file_name(std::string_view name);

// A file that holds weights or says where they are, as opposed to a configuration or a tokenizer.
bool is_weights_file(std::string_view name);

// Ten digits and a 'v' before them: "v0000000123" gives 123.
bool is_version_folder(std::string_view name);

// Ok when a file of a checkpoint may have this name, on any replica: UTF-8 of 1 to 255 bytes, no
// slashes and no control characters, no dot in front, and none of the names that a replica uses
// itself. Corruption otherwise: for names that come from a store.
Status check_checkpoint_file_name(std::string_view name);

struct NamedSize {
  std::string name;
  uint64_t size_bytes = 0;
};
// Ok when these side files are allowed of one checkpoint: names, that none is that of
// weights or differs from another by case alone, number and bytes. Corruption, naming file and
// rule.
Status check_side_files(const std::vector<NamedSize>& files);
// The same for the weights: names that an object can have too, number.
Status check_weights_files(const std::vector<NamedSize>& files);

// Converts Corruption to InvalidArgument, for defects in a caller's input.
Status as_invalid_argument(Status status);

}  // namespace deltawire
