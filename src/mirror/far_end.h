// The store that a chain is copied into.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "chain/chain.h"

namespace deltawire {

enum class PutRecord : uint8_t {
  kPut,
  kThere,   // the same bytes were there
  kOthers,  // others were
};

// The bytes of a record. They have no checksum of their own, and are copied as they are: so they
// are read twice, and Unavailable if they differ.
Result<std::string> read_text(Store& store, const std::string& name, uint64_t max_bytes);

// One thread.
class FarEnd {
 public:
  // Makes the run where there is none. BaseMismatch: it holds another; Unsupported: see
  // MirrorOptions::single_writer. Nothing of the chain itself is written before all of this, and
  // what begin() checks, has been looked at.
  static Result<FarEnd> open(const Chain& source, std::shared_ptr<Store> store, bool single_writer);

  const Chain& chain() const noexcept { return chain_; }
  Store& store() const noexcept { return chain_.store(); }

  // If the name is free.
  Result<PutRecord> put_record(const std::string& name, const std::string& text);
  // Puts the manifest of `version`, then the hint. Conflict when another one is there.
  Status commit(uint64_t version, const std::string& text);

  // Whether nobody else has taken it further than `last` (none: it holds no version) or has taken
  // that away: then what was planned does not hold any more.
  Result<bool> ends_with(std::optional<uint64_t> last);

 private:
  FarEnd(Chain chain, Capabilities can) : chain_(std::move(chain)), can_(can) {}
  static Result<PutRecord> put_record(Store& store, const Capabilities& can,
                                      const std::string& name, const std::string& text);
  Chain chain_;
  Capabilities can_;
};

}  // namespace deltawire
