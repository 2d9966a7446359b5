#include "format/packed_file.h"

#include <algorithm>
#include <cstring>

#include "base/text.h"
#include "codec/exponents.h"
#include "format/layout.h"
#include "tensor/safetensors.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

constexpr std::string_view kPackedKey = "deltawire", kCodecsKey = "deltawire.codecs";
constexpr std::string_view kPackedFormat = "whole/1 ";
constexpr std::string_view kHeaderEntry = "#header";
constexpr size_t kLengthBytes = sizeof(uint64_t);
// `exponents` saves a third at most, so no file grows by more than this factor.
constexpr uint64_t kMostGrowth = 2;

// Names are informative only; the order identifies the tensors.
std::string packed_name(size_t number, const std::string& name) {
  return name.starts_with('#') ? "#" + std::to_string(number) + name : name;
}

Result<SafetensorsHeader> parse_header(std::string_view header, uint64_t file_bytes) {
  if (header.size() < kLengthBytes || header.size() > file_bytes) return corruption("cut short");
  return parse_safetensors_header(header.substr(kLengthBytes), file_bytes - header.size());
}

// The first entry has the header of the plain file.
Result<uint64_t> plain_header_bytes(const SafetensorsHeader& header) {
  if (header.entries.empty() || header.entries[0].spec.name != kHeaderEntry) {
    return corruption("expected a first entry \"" + std::string(kHeaderEntry) + "\"");
  }
  const TensorEntry& own = header.entries[0];
  const uint64_t size = own.end - own.begin;
  if (size < kLengthBytes || size > kLengthBytes + kMaxHeaderBytes) {
    return corruption(std::string(kHeaderEntry) + ": " + std::to_string(size) + " bytes");
  }
  return size;
}

Result<uint64_t> safetensors_header_bytes(std::string_view front, uint64_t file_bytes) {
  if (front.size() < kLengthBytes) return corruption("cut short");
  const auto length = load_le<uint64_t>(front.data());
  if (length > kMaxHeaderBytes ||
      kLengthBytes + length > std::min<uint64_t>(file_bytes, front.size())) {
    return corruption("a header of " + std::to_string(length) + " bytes");
  }
  return kLengthBytes + length;
}

Status read_codecs(const SafetensorsHeader& header, PackedFile* file) {
  const std::string* const format = find_metadata(header.metadata, kPackedKey);
  const std::string* const codecs = find_metadata(header.metadata, kCodecsKey);
  if (format == nullptr || codecs == nullptr || header.metadata.size() != 2) {
    return corruption("not a packed file");
  }
  if (!format->starts_with(kPackedFormat)) {
    return unsupported("packed file " + quote(*format) + ": this build reads whole/1");
  }
  if (!parse_number(format->substr(kPackedFormat.size()), &file->plain_bytes)) {
    return corruption("a size " + quote(*format));
  }
  const auto names = codecs->empty() ? std::vector<std::string_view>() : split_text(*codecs, ';');
  if (names.size() != header.entries.size() - 1) {
    return corruption(std::string(kCodecsKey) + ": expected " +
                      std::to_string(header.entries.size() - 1) + " codecs, got " +
                      std::to_string(names.size()));
  }
  for (const std::string_view name : names) {
    const Codec* const codec = find_codec(name);
    if (codec == nullptr) return unsupported("no codec " + quote(std::string(name)));
    if (codec->id() != CodecId::kRaw && codec->id() != CodecId::kExponents) {
      return corruption("a whole tensor in " + quote(std::string(name)));
    }
    file->tensors.push_back({codec->id()});
  }
  return {};
}

// One tensor of the plain file and the entry that has its payload.
Status place_tensor(const TensorEntry& plain, const TensorEntry& packed, uint64_t packed_data,
                    uint64_t plain_data, PackedTensor* out) {
  const auto wrong = [&](const std::string& what) {
    return corruption("tensor " + quote(plain.spec.name) + ": " + what);
  };
  if (packed.spec.dtype != DType::kU8 || packed.spec.shape.size() != 1) {
    return wrong("a payload is a U8 vector");
  }
  out->dtype = plain.spec.dtype;
  out->begin = packed_data + packed.begin, out->size = packed.end - packed.begin;
  out->plain_begin = plain_data + plain.begin, out->plain_size = plain.end - plain.begin;
  const bool raw = out->codec == CodecId::kRaw;
  if (raw ? out->size == out->plain_size : out->plain_size / kMostGrowth <= out->size) return {};
  return wrong("a payload of " + std::to_string(out->size) + " bytes for " +
               std::to_string(out->plain_size));
}

}  // namespace

Result<std::string> serialise_packed_front(const std::vector<std::string>& names,
                                           PackedFile* file) {
  std::vector<TensorSpec> specs = {
      {std::string(kHeaderEntry), DType::kU8, {file->plain_header.size()}}};
  std::string codecs;
  for (size_t i = 0; i < names.size(); ++i) {
    specs.push_back({packed_name(i, names[i]), DType::kU8, {file->tensors[i].size}});
    if (i != 0) codecs.push_back(';');
    codecs += find_codec(file->tensors[i].codec)->name();
  }
  DW_ASSIGN_OR_RETURN(std::string front,
                      serialise_safetensors_header(
                          specs, {{std::string(kPackedKey),
                                   std::string(kPackedFormat) + std::to_string(file->plain_bytes)},
                                  {std::string(kCodecsKey), codecs}}));
  front += file->plain_header;
  uint64_t at = front.size();
  for (PackedTensor& tensor : file->tensors) {
    tensor.begin = at;
    at += tensor.size;
  }
  return front;
}

Result<uint64_t> packed_front_bytes(std::string_view header, uint64_t file_bytes) {
  DW_ASSIGN_OR_RETURN(const SafetensorsHeader parsed, parse_header(header, file_bytes));
  DW_ASSIGN_OR_RETURN(const uint64_t plain, plain_header_bytes(parsed));
  return header.size() + plain;
}

Result<PackedFile> parse_packed_front(std::string_view front, uint64_t file_bytes) {
  DW_ASSIGN_OR_RETURN(const uint64_t header_bytes, safetensors_header_bytes(front, file_bytes));
  DW_ASSIGN_OR_RETURN(const SafetensorsHeader header,
                      parse_header(front.substr(0, header_bytes), file_bytes));
  DW_ASSIGN_OR_RETURN(const uint64_t plain_header, plain_header_bytes(header));
  if (front.size() < header_bytes + plain_header) return corruption("cut short");
  PackedFile file;
  file.plain_header = front.substr(header_bytes, plain_header);
  DW_RETURN_IF_ERROR(read_codecs(header, &file));
  if (load_le<uint64_t>(file.plain_header.data()) != plain_header - kLengthBytes ||
      file.plain_bytes < plain_header || file.plain_bytes / kMostGrowth > file_bytes) {
    return corruption("sizes of the plain file do not fit");
  }
  DW_ASSIGN_OR_RETURN(const SafetensorsHeader plain,
                      parse_header(file.plain_header, file.plain_bytes));
  if (plain.entries.size() != file.tensors.size()) {
    return corruption("expected " + std::to_string(plain.entries.size()) + " payloads, got " +
                      std::to_string(file.tensors.size()));
  }
  for (size_t i = 0; i < plain.entries.size(); ++i) {
    DW_RETURN_IF_ERROR(place_tensor(plain.entries[i], header.entries[i + 1], header_bytes,
                                    plain_header, &file.tensors[i]));
  }
  return file;
}

Result<PackedFile> parse_packed(Bytes file) {
  return parse_packed_front({reinterpret_cast<const char*>(file.data()), file.size()}, file.size());
}

Status unpack(const PackedFile& file, Bytes packed, MutableBytes plain, ThreadPool* pool) {
  std::memcpy(plain.data(), file.plain_header.data(), file.plain_header.size());
  for (const PackedTensor& tensor : file.tensors) {
    const Bytes payload = packed.subspan(size_t(tensor.begin), size_t(tensor.size));
    const MutableBytes to = plain.subspan(size_t(tensor.plain_begin), size_t(tensor.plain_size));
    DW_RETURN_IF_ERROR(find_codec(tensor.codec)->apply(layout_of(tensor.dtype), payload, to, pool));
  }
  return {};
}

}  // namespace deltawire
