// The fixed phrases by which each defect of a checkpoint's files is known: the message of a Status
// contains one of them, with the place before it and the particulars after it. Tests pin them.
#pragma once

#include <string_view>

namespace deltawire::defect {

// Of any JSON text.
inline constexpr std::string_view kNotUtf8 = "not valid UTF-8";
inline constexpr std::string_view kNotJson = "not valid JSON";
inline constexpr std::string_view kNotObject = "does not begin with '{'";
inline constexpr std::string_view kTrailingBytes = "bytes after the closing '}'";
inline constexpr std::string_view kTooDeep = "nested too deep";

// Of a safetensors file's frame.
inline constexpr std::string_view kTooShort = "too short for a header length";
inline constexpr std::string_view kHeaderEmpty = "header length is 0";
inline constexpr std::string_view kHeaderOverLimit = "header length is over the limit";
inline constexpr std::string_view kHeaderPastEnd = "header runs past the end of the file";

// Of its header.
inline constexpr std::string_view kDuplicateTensor = "duplicate tensor name";
inline constexpr std::string_view kDuplicateField = "duplicate field";
inline constexpr std::string_view kUnknownField = "unknown field";
inline constexpr std::string_view kMissingField = "missing field";
inline constexpr std::string_view kWrongType = "wrong type";
inline constexpr std::string_view kBadNumber = "not an unsigned 64-bit integer";
inline constexpr std::string_view kUnknownDType = "unknown dtype";  // the one that is Unsupported
inline constexpr std::string_view kRankOverLimit = "too many dimensions";
inline constexpr std::string_view kMetadataNotStrings = "__metadata__ is not a map of strings";
inline constexpr std::string_view kDuplicateMetadata = "duplicate __metadata__ key";

// Of its layout.
inline constexpr std::string_view kOffsetsReversed = "data_offsets end before they begin";
inline constexpr std::string_view kOffsetsPastEnd = "data_offsets run past the data";
inline constexpr std::string_view kShapeInvalid = "no size in bytes";
inline constexpr std::string_view kSizeMismatch = "data_offsets do not match dtype and shape";
inline constexpr std::string_view kOverlap = "data overlaps the tensor before it";
inline constexpr std::string_view kHole = "hole in the data before it";
inline constexpr std::string_view kUncovered = "data after the last tensor";

// Of a sharded checkpoint's index.
inline constexpr std::string_view kNoWeightMap = "missing weight_map";
inline constexpr std::string_view kDuplicateKey = "duplicate key";
inline constexpr std::string_view kNotAFileName = "not the name of a file in the index's folder";
inline constexpr std::string_view kShardMissing = "file named by the index is missing";
inline constexpr std::string_view kTensorMissing = "not in the file the index names";
inline constexpr std::string_view kTensorUnmapped = "not in the index";
inline constexpr std::string_view kTensorTwice = "in two files";

}  // namespace deltawire::defect
