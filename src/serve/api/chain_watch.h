// A server's summary of a chain for its page: read in the background, newest versions first, and
// then kept up to date. docs/api.md describes the answers.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/metrics.h"
#include "deltawire/chain.h"
#include "http/http_server.h"
#include "replica/follow_watch.h"
#include "serve/api/answers.h"
#include "serve/api/chain_events.h"
#include "serve/api/chain_health.h"
#include "serve/api/fleet.h"
#include "serve/api/layer_shares.h"
#include "serve/api/version_history.h"

namespace deltawire {

// Two threads of its own. Thread-safe. Memory: about 350 bytes for each version, up to a million of
// them; a few hundred MiB of what headers say at most.
class ChainWatch {
 public:
  ChainWatch(std::shared_ptr<Store> store, std::string id, Keys keys, double poll_seconds);
  ~ChainWatch();
  void end();  // ends all streams

  nlohmann::json summary();
  // `path`: what follows the chain's id, "/fleet".
  HttpReply answer(const std::string& path, const HttpCall& call);
  void record(Metrics* metrics);  // for Prometheus

 private:
  struct Seen;  // by the reader of a stream

  // chain_watch.cpp: the thread that watches.
  void run();
  void look();
  Status open();
  Status look_for_versions();
  Status look_for_hops();
  Status look_for_first();
  void add(const VersionRecord& record, bool is_new);
  int64_t created(const Manifest& manifest, bool is_new) const;
  std::optional<int64_t> head_created() const;
  void tell_published(const Manifest& manifest, double time);
  void look_for_failed(const Manifest& manifest);
  void update_health();
  // chain_fill.cpp: the other thread.
  void fill();
  void fill_history(std::unique_lock<std::mutex>& lock);
  void fill_shares(std::unique_lock<std::mutex>& lock);
  void fill_one_ulp(std::unique_lock<std::mutex>& lock);

  // chain_answers.cpp: under the mutex, but those with requests of their own.
  nlohmann::json loading() const;
  nlohmann::json health() const;
  nlohmann::json fleet(std::optional<uint64_t> since) const;
  Result<nlohmann::json> versions(const Parameters& parameters) const;
  Result<nlohmann::json> layers(const Parameters& parameters);
  Result<nlohmann::json> tensor(const std::string& name, const Parameters& parameters);
  Result<nlohmann::json> version(uint64_t number, const Parameters& parameters);
  Result<nlohmann::json> plan(uint64_t number);
  Result<nlohmann::json> events(const Parameters& parameters) const;
  HttpReply stream(const HttpCall& call);
  bool tell(Seen* seen, std::string* text);
  // The columns that are asked for.
  Result<VersionGrid> grid_of(const Parameters& parameters, uint64_t usual, uint64_t most,
                              uint64_t* from, uint64_t* to) const;
  // Asks for the headers that a heat map needs, unless they are there. How many are.
  std::vector<uint64_t> want(const VersionGrid& grid, nlohmann::json* answer);
  // Asks for the sizes of steps of a tensor in a few versions. The median, of what is there.
  std::optional<double> want_one_ulp(const std::string& tensor, uint64_t from, uint64_t to,
                                     nlohmann::json* answer);
  Result<Chain> chain() const;

  const std::shared_ptr<Store> store_;
  const std::string id_;
  const Keys keys_;
  const double poll_seconds_;
  FollowWatch watch_;

  std::mutex plan_mutex_;  // one at a time
  mutable std::mutex mutex_;
  std::condition_variable changed_, work_;
  uint64_t changes_ = 0;  // grows when there may be news
  std::optional<Chain> chain_;
  Status failure_ = Status(Code::kNotFound, "not read yet");
  std::optional<Manifest> head_;
  std::optional<Identity> head_identity_;
  std::optional<uint64_t> first_;
  double head_seen_ = 0;
  double complete_ = 0;  // when we last knew all versions
  VersionHistory history_;
  std::optional<uint64_t> next_;  // version to be read into it; none: all were
  uint64_t floor_ = 0;            // the last one to be read
  bool told_history_ = false;
  std::map<uint64_t, uint64_t> anchors_;                      // bytes by version
  std::map<std::pair<uint64_t, uint64_t>, uint64_t> merged_;  // bytes by version and base
  Fleet fleet_;
  ChainEvents events_;
  ChainHealth health_;
  LayerShares layers_;
  std::vector<uint64_t> wanted_;  // ascending: the last is read first
  std::string one_ulp_of_;        // the tensor whose steps were asked for
  std::vector<uint64_t> wanted_one_ulp_;
  size_t num_streams_ = 0;

  // Of the watching thread.
  double fleet_due_ = 0, hops_due_ = 0, first_due_ = 0, run_due_ = 0;
  bool read_hops_ = false;
  std::atomic<bool> ending_ = false;
  std::thread watcher_, filler_;
};

}  // namespace deltawire
