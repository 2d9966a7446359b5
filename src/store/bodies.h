// What is put into a store without being copied into one piece first.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/file.h"
#include "deltawire/digest.h"
#include "deltawire/store.h"

namespace deltawire {

// Bodies, one after the other.
class JoinedBody final : public Body {
 public:
  explicit JoinedBody(std::vector<std::shared_ptr<const Body>> bodies);
  uint64_t size() const noexcept override { return size_; }
  Status read(uint64_t offset, MutableBytes out) const override;

 private:
  struct Placed {
    uint64_t begin;
    std::shared_ptr<const Body> body;
  };
  std::vector<Placed> bodies_;
  uint64_t size_ = 0;
};

// Bytes with what keeps them alive.
class OwnedBody final : public Body {
 public:
  OwnedBody(std::shared_ptr<const void> owner, Bytes bytes)
      : owner_(std::move(owner)), body_(bytes) {}
  static std::shared_ptr<const Body> of(std::string text);
  uint64_t size() const noexcept override { return body_.size(); }
  Status read(uint64_t offset, MutableBytes out) const override { return body_.read(offset, out); }

 private:
  const std::shared_ptr<const void> owner_;
  const MemoryBody body_;
};

// Ends the put that reads it once `stop` is true: a slow link need not be waited for.
class StoppableBody final : public Body {
 public:
  StoppableBody(const Body& body, const std::atomic<bool>& stop) : body_(body), stop_(stop) {}
  uint64_t size() const noexcept override { return body_.size(); }
  Status read(uint64_t offset, MutableBytes out) const override {
    return stop_ ? cancelled("stopped on request") : body_.read(offset, out);
  }

 private:
  const Body& body_;
  const std::atomic<bool>& stop_;
};

// Of a file. Fails when bytes that it gave had been cut off.
std::shared_ptr<const Body> file_body(std::shared_ptr<MappedFile> file);

// Passes a body on and takes its sha-256 as it goes by. A store that reads it in order pays one
// pass; one that reads pieces in any order makes sha256() read it once more, so that a body which
// may change meanwhile must be a StableBody.
class HashingBody final : public Body {
 public:
  explicit HashingBody(const Body& body) : body_(body), hasher_(DigestKind::kSha256) {}
  uint64_t size() const noexcept override { return body_.size(); }
  Status read(uint64_t offset, MutableBytes out) const override;
  // When nothing reads it any more.
  Result<Digest> sha256();

 private:
  const Body& body_;
  mutable std::mutex mutex_;
  mutable Hasher hasher_;
  mutable uint64_t hashed_ = 0;  // bytes from the start
};

// Of bytes that a trainer or another process may write to: gives the same bytes however often they
// are read, in any order, from any thread; or Io, once they differ from what was given before. So
// digests and objects that were made from it agree. Remembers 16 bytes per 128 KiB.
class StableBody final : public Body {
 public:
  // `what` names it in messages.
  StableBody(std::shared_ptr<const Body> inner, std::string what);
  uint64_t size() const noexcept override { return inner_->size(); }
  Status read(uint64_t offset, MutableBytes out) const override;

 private:
  struct Print {
    uint64_t words[2] = {0, 0};
    bool operator==(const Print&) const = default;
  };
  // Fills `out` with a chunk and holds it against what was given before.
  Status read_chunk(uint64_t chunk, MutableBytes out) const;
  Result<Bytes> cached_chunk(uint64_t chunk) const;

  const std::shared_ptr<const Body> inner_;
  const std::string what_;
  const uint64_t id_;  // no other body of this process has it
  mutable std::mutex mutex_;
  mutable std::vector<Print> prints_;
  mutable std::vector<bool> known_;
};

// Of a whole body, read in small pieces.
Result<Digest> digest_of_body(DigestKind kind, const Body& body);

// Into a sink, piece by piece.
Status copy_body(const Body& body, Sink* sink);
// All of a small one.
Result<std::string> text_of_body(const Body& body);
// Whether an object is what was to be put: the answer to a put may be lost.
Result<bool> holds_body(Store& store, std::string_view name, const Body& body);

}  // namespace deltawire
