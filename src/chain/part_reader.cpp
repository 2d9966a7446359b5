#include "chain/part_reader.h"

#include <algorithm>

#include "base/bytes.h"
#include "format/checkpoint_files.h"
#include "format/packed_file.h"

namespace deltawire {
namespace {

constexpr uint64_t kPieceBytes = uint64_t{8} << 20;
constexpr uint64_t kMaxHeaderBytes = 100'000'008;  // as readers of safetensors have it

// Feeds `take` with the part, piece by piece from the front.
Status read_pieces(Store& store, const PartRef& part, const ReadProgress& progress,
                   const std::function<void(Bytes)>& take) {
  const std::string place = store.url() + "/" + part.name;
  DW_ASSIGN_OR_RETURN(const ObjectInfo info, store.stat(part.name));
  if (info.size_bytes != part.size_bytes) {
    return corruption(place + ": expected " + std::to_string(part.size_bytes) + " bytes, got " +
                      std::to_string(info.size_bytes));
  }
  Hasher hasher(DigestKind::kSha256);
  std::vector<uint8_t> piece;
  for (uint64_t at = 0; at < part.size_bytes; at += piece.size()) {
    piece.resize(size_t(std::min(kPieceBytes, part.size_bytes - at)));
    DW_RETURN_IF_ERROR(store.read(part.name, at, piece));
    hasher.update(Bytes(piece));
    take(piece);
    if (progress && !progress(piece.size())) return cancelled("stopped on request");
  }
  const Digest got = hasher.finish();
  if (got != part.sha256) {
    return corruption(place + ": sha-256: expected " + part.sha256.hex() + ", got " + got.hex());
  }
  return {};
}

}  // namespace

Status check_part(Store& store, const PartRef& part, const ReadProgress& progress) {
  return read_pieces(store, part, progress, [](Bytes) {});
}

Result<std::vector<uint8_t>> read_part(Store& store, const PartRef& part,
                                       const ReadProgress& progress) {
  std::vector<uint8_t> bytes;
  DW_RETURN_IF_ERROR(read_pieces(store, part, progress, [&](Bytes piece) {
    bytes.insert(bytes.end(), piece.begin(), piece.end());
  }));
  return bytes;
}

Result<std::string> read_part_header(Store& store, const PartRef& part,
                                     const ReadProgress& progress) {
  std::string header;
  uint64_t wanted = sizeof(uint64_t);
  bool packed = is_packed_file(part.name);
  DW_RETURN_IF_ERROR(read_pieces(store, part, progress, [&](Bytes piece) {
    const auto take = [&] {
      const size_t count = size_t(std::min<uint64_t>(wanted - header.size(), piece.size()));
      header.append(reinterpret_cast<const char*>(piece.data()), count);
      piece = piece.subspan(count);
    };
    if (header.size() < wanted) take();
    if (header.size() == sizeof(uint64_t) && wanted == sizeof(uint64_t)) {
      const uint64_t length = load_le<uint64_t>(header.data());
      wanted += std::min(length, kMaxHeaderBytes);
      take();
    }
    if (packed && wanted > sizeof(uint64_t) && header.size() == wanted) {
      packed = false;
      const Result<uint64_t> front = packed_front_bytes(header, part.size_bytes);
      if (!front.ok()) return;  // found when it is parsed
      wanted = *front;
      take();
    }
  }));
  return header;
}

Result<std::string> read_header_alone(Store& store, const PartRef& part) {
  constexpr uint64_t kUsualBytes = 64 << 10;  // most headers have less: one request
  std::vector<uint8_t> front(size_t(std::min(kUsualBytes, part.size_bytes)));
  DW_RETURN_IF_ERROR(store.read(part.name, 0, front));
  if (front.size() < sizeof(uint64_t)) return corruption(part.name + ": has no header");
  const uint64_t length = load_le<uint64_t>(front.data());
  if (length > std::min(kMaxHeaderBytes, part.size_bytes) - sizeof(uint64_t)) {
    return corruption(part.name + ": its header is longer than it");
  }
  const size_t had = front.size();
  front.resize(size_t(sizeof(uint64_t) + length));
  if (front.size() > had) {
    DW_RETURN_IF_ERROR(store.read(part.name, had, std::span(front).subspan(had)));
  }
  return std::string(front.begin(), front.end());
}

}  // namespace deltawire
