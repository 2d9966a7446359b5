// What ranks of a sharded trainer ask of the store and tell each other there. When, and what
// follows from it, is in rank_rules.h; what the records say in ranks_record.h.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "chain/chain.h"
#include "deltawire/publisher.h"
#include "publish/rank_rules.h"
#include "publish/ranks_record.h"

namespace deltawire {

// Every rank has the key: what one signs the others check. Null: the run is not signed.
struct RankKeys {
  Signer sign;
  Verifier trust;
};

// The records of ranks about one version. None: there is no such record. Corruption, with the
// object's name: there is, and it cannot be believed.
class RankExchange {
 public:
  RankExchange(const Chain& chain, uint64_t version, unsigned world, const RankKeys& keys)
      : chain_(chain), version_(version), world_(world), keys_(keys) {}

  // The text first, for a reader that remembers what was there when it came.
  Result<std::optional<std::string>> begin_text() const;
  Result<RankBegin> read_begin(const std::string& text) const;
  Status put_begin(const RankBegin& begin) const;

  Result<std::optional<RankDone>> read_done(const std::string& attempt) const;
  // Of an attempt of this step that failed.
  Result<std::optional<RankDone>> find_failure(uint64_t step) const;
  Status put_done(const RankDone& done) const;

  Result<std::optional<RankReport>> read_report(const RankAttempt& of, unsigned rank,
                                                bool full) const;
  Status put_report(const RankReport& report) const;
  // Names of the reports to an attempt that a listing shows.
  Result<std::set<std::string>> listed(const RankAttempt& of) const;

  Result<std::optional<VersionRecord>> read_manifest() const;
  // That the version's manifest is of a rank, and no forgery: where the run is signed, by its key.
  Status check_manifest(const VersionRecord& record) const;

  // Takes away what the ranks have reported: to attempts that are over. Their ends stay known.
  void remove_reports() const;
  // After the commit: nothing is pending any more up to this version.
  void clean_up() const;

 private:
  std::string place_of(const std::string& name) const { return chain_.store().url() + "/" + name; }
  Result<RankDone> parse_done_at(const std::string& name, const std::string& text) const;
  void remove_pending(const std::string& version,
                      const std::function<bool(std::string_view name)>& which) const;

  const Chain& chain_;
  const uint64_t version_;
  const unsigned world_;
  const RankKeys& keys_;
};

// Waits between questions, longer and longer, and knows when it has been long enough.
class Pacer {
 public:
  explicit Pacer(const PublishOptions& options) : options_(options) { start_over(); }
  void start_over();  // something has come of it
  ranks::Pause pause();

 private:
  const PublishOptions& options_;
  double end_ = 0, pause_ = 0;
};

}  // namespace deltawire
