#include "lab/bench/chain/codecs_bench.h"

#include <fmt/format.h>

#include <array>
#include <map>
#include <memory>

#include "lab/bench/chain/both_sides.h"

namespace deltawire::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array kCodecs = {"tight", "gaps", "raw", "fastest"};
// What takes so many times as long as the best is not measured again.
constexpr double kHopeless = 3;

struct Link {
  std::string name;
  uint64_t bytes_per_second;  // each way; 0: no limit
};

// A publisher, a replica in memory and the chain between them.
class CodecChain {
 public:
  static Result<std::unique_ptr<CodecChain>> open(const Context& context, const BenchData& data,
                                                  const Link& link, const std::string& codec,
                                                  const std::filesystem::path& folder) {
    StoreOptions limited;
    limited.max_bytes_per_second = link.bytes_per_second;
    const std::string url = fmt::format("memory:codecs-{}-{}", link.bytes_per_second, codec);
    auto chain = std::unique_ptr<CodecChain>(new CodecChain(data));
    DW_ASSIGN_OR_RETURN(chain->store_, open_store(url, {}));
    DW_ASSIGN_OR_RETURN(const auto near, open_store(url, limited));
    DW_ASSIGN_OR_RETURN(const auto far, open_store(url, limited));
    PublishOptions how;
    how.limits.threads = context.threads;
    how.codec = codec;
    how.anchors = Anchors{.every = 0, .by_bytes = false};
    DW_ASSIGN_OR_RETURN(Publisher publisher, Publisher::open(near, how));
    chain->publisher_.emplace(std::move(publisher));
    DW_RETURN_IF_ERROR(chain->publisher_->publish(tensors_of(data, false)).status());
    TensorReplicaOptions options;
    options.limits.threads = context.threads;
    options.scratch = folder;
    DW_ASSIGN_OR_RETURN(TensorReplica replica,
                        TensorReplica::open(far, chain->model_.tensors(), options));
    chain->replica_.emplace(std::move(replica));
    DW_RETURN_IF_ERROR(chain->replica_->pull().status());
    return chain;
  }
  ~CodecChain() {  // memory of that name outlives its handles
    std::vector<std::string> names;
    (void)list_all(*store_, "", "", [&](const ObjectInfo& object) {
      names.push_back(object.name);
      return true;
    });
    for (const std::string& name : names) (void)store_->remove(name);
  }

  // One version, from the call of publish() until the replica holds it.
  Status round() {
    DW_ASSIGN_OR_RETURN(const std::optional<uint64_t> head, replica_->head());
    after_ = !after_;
    const std::vector<PublishTensor> tensors = tensors_of(data_, after_);
    Followed followed;
    std::thread follower([&] { followed = follow_once(&*replica_, *head); });
    const double start = now_seconds();
    const Result<PublishReport> sent = publisher_->publish(tensors);
    follower.join();
    DW_RETURN_IF_ERROR(Status(sent.status()));
    DW_RETURN_IF_ERROR(std::move(followed.status));
    if (!model_.holds(data_, after_)) return internal_error("the tensors are not the version");
    seconds_.push_back(followed.applied - start);
    bytes_ = sent->bytes;
    chosen_.push_back(sent->full ? "full" : sent->codec);
    reason_ = sent->codec_reason;
    return {};
  }

  double best() const { return *std::min_element(seconds_.begin(), seconds_.end()); }
  bool measured() const { return !seconds_.empty(); }
  const std::string& reason() const { return reason_; }
  // "gaps", or "tight 1, gaps 4".
  std::string chosen() const {
    std::map<std::string, size_t> counts;
    for (const std::string& codec : chosen_) ++counts[codec];
    std::string text;
    for (const auto& [codec, count] : counts) {
      text += (text.empty() ? "" : ", ") + codec;
      if (counts.size() > 1) text += fmt::format(" {}", count);
    }
    return text;
  }
  Json to_json() const {
    return {{"applied_seconds", seconds_},
            {"bytes", bytes_},
            {"codecs", chosen_},
            {"codec_reason", reason_}};
  }

 private:
  explicit CodecChain(const BenchData& data) : data_(data), model_(data) {}

  const BenchData& data_;
  HostModel model_;
  std::shared_ptr<Store> store_;  // without a limit
  std::optional<Publisher> publisher_;
  std::optional<TensorReplica> replica_;
  bool after_ = false;  // what the head is
  std::vector<double> seconds_;
  std::vector<std::string> chosen_;
  uint64_t bytes_ = 0;
  std::string reason_;
};

// Codecs take turns, so that what else goes on in the machine hits all of them.
Result<Json> bench_link(const Context& context, const BenchData& data, const Link& link,
                        unsigned repeat, const std::filesystem::path& folder) {
  std::vector<std::unique_ptr<CodecChain>> chains;
  for (const char* codec : kCodecs) {
    DW_ASSIGN_OR_RETURN(auto chain, CodecChain::open(context, data, link, codec, folder));
    chains.push_back(std::move(chain));
  }
  double best = 0;
  for (unsigned round = 0; round < repeat; ++round) {
    for (auto& chain : chains) {
      if (round != 0 && chain->best() > kHopeless * best) continue;
      DW_RETURN_IF_ERROR(chain->round());
    }
    best = chains.front()->best();  // of the fixed ones
    for (size_t i = 1; i + 1 < chains.size(); ++i) best = std::min(best, chains[i]->best());
  }
  Json row = {{"link", link.name}, {"bytes_per_second", link.bytes_per_second}};
  std::string line = fmt::format("{:<10}", link.name);
  for (size_t i = 0; i < chains.size(); ++i) {
    row[kCodecs[i]] = chains[i]->to_json();
    line += fmt::format(" {:>9}", seconds(chains[i]->best()));
  }
  const CodecChain& fastest = *chains.back();
  context.say(line + fmt::format(" {:>6.2f}  {}", fastest.best() / best, fastest.chosen()));
  context.say("           " + fastest.reason());
  return row;
}

}  // namespace

Status bench_codecs(const Context& context, const BenchData& data, unsigned repeat,
                    const std::filesystem::path& folder) {
  context.say(fmt::format("data      {}: {} of weights, {} changed", data.source,
                          human_bytes(double(data.weights_bytes)), percent(data.density())));
  context.say("");
  std::string line = fmt::format("{:<10}", "link");
  for (const char* codec : kCodecs) line += fmt::format(" {:>9}", codec);
  context.say(line + fmt::format(" {:>6}  {}", "x best", "chosen"));
  Json rows = Json::array();
  for (const Link& link : {Link{"10 MB/s", 10'000'000}, Link{"100 MB/s", 100'000'000},
                           Link{"1 GB/s", 1'000'000'000}, Link{"no limit", 0}}) {
    DW_ASSIGN_OR_RETURN(Json row, bench_link(context, data, link, repeat, folder));
    rows.push_back(std::move(row));
  }
  context.say("");
  context.say(
      "from the call of publish until a replica in memory has it, best of the rounds; "
      "x best: fastest / the best of tight, gaps and raw");
  context.emit(
      {{"weights_bytes", data.weights_bytes}, {"density", data.density()}, {"links", rows}});
  return {};
}

}  // namespace deltawire::cli
