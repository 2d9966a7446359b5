// Bodies that are put into a store without being copied into one buffer first.
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

// Fails reads once `stop` is true, which ends a put over a slow link.
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

// The body of a file. Reads fail if the file was truncated.
std::shared_ptr<const Body> file_body(std::shared_ptr<MappedFile> file);

// Computes the sha-256 of a body while a store reads it. If the store does not read in order,
// sha256() reads the body again, so a body that may change meanwhile must be a StableBody.
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

// A body whose bytes a trainer or another process may overwrite. Every read returns the same bytes
// as before, in any order and from any thread, or Io if they have changed. So digests and objects
// made from it agree. Keeps 16 bytes per 128 KiB.
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
  // Fills `out` with a chunk and compares it with the previous read.
  Status read_chunk(uint64_t chunk, MutableBytes out) const;
  Result<Bytes> cached_chunk(uint64_t chunk) const;

  const std::shared_ptr<const Body> inner_;
  const std::string what_;
  const uint64_t id_;  // no other body of this process has it
  mutable std::mutex mutex_;
  mutable std::vector<Print> prints_;
  mutable std::vector<bool> known_;
};

// The digest of a whole body, read in small pieces.
Result<Digest> digest_of_body(DigestKind kind, const Body& body);

// Copies a body into a sink, piece by piece.
Status copy_body(const Body& body, Sink* sink);
// The contents of a small body.
Result<std::string> text_of_body(const Body& body);
// Whether an object equals `body`, for when the answer to a put was lost.
Result<bool> holds_body(Store& store, std::string_view name, const Body& body);

}  // namespace deltawire
