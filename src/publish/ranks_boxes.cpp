#include "publish/ranks_boxes.h"

#include <algorithm>
#include <cstring>

#include "chain/names.h"
#include "tensor/text.h"

namespace deltawire {
namespace {

class BoxBody final : public Body {
 public:
  BoxBody(std::shared_ptr<BlockCache> cache, std::shared_ptr<const BoxesObject> object,
          uint64_t begin, uint64_t size)
      : cache_(std::move(cache)), object_(std::move(object)), begin_(begin), size_(size) {}
  uint64_t size() const noexcept override { return size_; }
  Status read(uint64_t offset, MutableBytes out) const override {
    return cache_->read(*object_, begin_ + offset, out);
  }

 private:
  const std::shared_ptr<BlockCache> cache_;
  const std::shared_ptr<const BoxesObject> object_;
  const uint64_t begin_, size_;
};

uint64_t bytes_of(const PieceRecord& piece) {
  return tensor_size_bytes(piece.dtype, box_shape(piece.box, piece.shape)).value();
}

}  // namespace

std::string boxes_name(uint64_t version, std::string_view attempt, unsigned rank) {
  return std::string(kPendingPrefix) + number_name(version) + "-" + std::string(attempt) +
         "/rank-" + std::to_string(rank) + ".boxes";
}

Result<BlockCache::Block> BlockCache::block(const BoxesObject& object, uint64_t number) {
  const Key key{object.name, number};
  {
    const std::lock_guard lock(mutex_);
    const auto found = by_key_.find(key);
    if (found != by_key_.end()) {
      recent_.splice(recent_.begin(), recent_, found->second);
      return found->second->second;
    }
  }
  const uint64_t begin = number * kBoxesBlockBytes;
  if (number >= object.seal.blocks.size() || begin >= object.seal.size_bytes) {
    return corruption(object.name + ": the object is smaller than its pieces");
  }
  auto bytes = std::make_shared<std::vector<uint8_t>>(
      std::min(kBoxesBlockBytes, object.seal.size_bytes - begin));
  DW_RETURN_IF_ERROR(store_.read(object.name, begin, *bytes));
  const Digest got = digest_of(DigestKind::kSha256, *bytes);
  if (got != object.seal.blocks[number]) {
    return corruption(store_.url() + "/" + object.name + ": sha-256 of block " +
                      std::to_string(number) + ": expected " + object.seal.blocks[number].hex() +
                      ", as the rank reported, got " + got.hex());
  }
  const std::lock_guard lock(mutex_);
  if (by_key_.contains(key)) return Block(bytes);  // another thread was faster
  bytes_ += bytes->size();
  recent_.emplace_front(key, bytes);
  by_key_[key] = recent_.begin();
  while (bytes_ > max_bytes_ && recent_.size() > 1) {
    bytes_ -= recent_.back().second->size();
    by_key_.erase(recent_.back().first);
    recent_.pop_back();
  }
  return Block(bytes);
}

Status BlockCache::read(const BoxesObject& object, uint64_t offset, MutableBytes out) {
  while (!out.empty()) {
    const uint64_t number = offset / kBoxesBlockBytes, skip = offset % kBoxesBlockBytes;
    DW_ASSIGN_OR_RETURN(const Block bytes, block(object, number));
    if (skip >= bytes->size()) {
      return corruption(object.name + ": the object is smaller than its pieces");
    }
    const size_t count = size_t(std::min<uint64_t>(bytes->size() - skip, out.size()));
    std::memcpy(out.data(), bytes->data() + skip, count);
    out = out.subspan(count);
    offset += count;
  }
  return {};
}

std::vector<std::shared_ptr<const Body>> boxes_in_object(const std::vector<PieceRecord>& pieces,
                                                         BoxesObject object,
                                                         std::shared_ptr<BlockCache> cache) {
  const auto shared = std::make_shared<const BoxesObject>(std::move(object));
  std::vector<std::shared_ptr<const Body>> bodies;
  uint64_t begin = 0;
  for (const PieceRecord& piece : pieces) {
    bodies.push_back(std::make_shared<BoxBody>(cache, shared, begin, bytes_of(piece)));
    begin += bytes_of(piece);
  }
  return bodies;
}

SealingBody::SealingBody(const Body& body, const std::vector<PieceRecord>& pieces)
    : body_(body), pieces_(pieces), block_(DigestKind::kSha256), piece_(DigestKind::kSum128) {
  seal_.size_bytes = body.size();
  end_pieces();
}

Status SealingBody::read(uint64_t offset, MutableBytes out) const {
  DW_RETURN_IF_ERROR(body_.read(offset, out));
  const std::lock_guard lock(mutex_);
  // A retry reads bytes again; only new ones count.
  if (offset <= hashed_ && offset + out.size() > hashed_) {
    take(Bytes(out).subspan(size_t(hashed_ - offset)));
  }
  return {};
}

void SealingBody::end_pieces() const {
  while (at_piece_ < pieces_.size() && hashed_ - piece_begin_ == bytes_of(pieces_[at_piece_])) {
    if (piece_.finish() != pieces_[at_piece_].digest && changed_.empty()) {
      changed_ = pieces_[at_piece_].name;
    }
    piece_ = Hasher(DigestKind::kSum128);
    piece_begin_ = hashed_;
    ++at_piece_;
  }
}

void SealingBody::take(Bytes bytes) const {
  while (!bytes.empty()) {
    uint64_t count =
        std::min<uint64_t>(bytes.size(), kBoxesBlockBytes - hashed_ % kBoxesBlockBytes);
    if (at_piece_ < pieces_.size()) {
      count = std::min(count, bytes_of(pieces_[at_piece_]) - (hashed_ - piece_begin_));
    }
    block_.update(bytes.first(size_t(count)));
    piece_.update(bytes.first(size_t(count)));
    hashed_ += count;
    bytes = bytes.subspan(size_t(count));
    if (hashed_ % kBoxesBlockBytes == 0 || hashed_ == seal_.size_bytes) {
      seal_.blocks.push_back(block_.finish());
      block_ = Hasher(DigestKind::kSha256);
    }
    end_pieces();
  }
}

Result<BoxesSeal> SealingBody::seal() {
  std::vector<uint8_t> rest;
  while (hashed_ < seal_.size_bytes) {  // the store did not read in order
    rest.resize(size_t(std::min(kBoxesBlockBytes, seal_.size_bytes - hashed_)));
    DW_RETURN_IF_ERROR(body_.read(hashed_, rest));
    take(rest);
  }
  if (changed_.empty()) return seal_;
  return io_error("tensor " + quote(changed_) +
                  ": changed while it was published; nothing was committed, publish again when "
                  "nothing writes to it");
}

}  // namespace deltawire
