#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <functional>

#include "base/bytes.h"
#include "base/folder.h"
#include "chain/names.h"
#include "chain/plan.h"
#include "cli/units.h"
#include "format/manifest.h"
#include "lab/bench/cases.h"
#include "lab/bench/report.h"
#include "maintain/walk_parts.h"
#include "store/directory_store.h"
#include "store/memory_store.h"
#include "store/metered_store.h"

namespace deltawire::cli {
namespace {

namespace fs = std::filesystem;

// Promised, however old the chain and however many tensors.
constexpr uint64_t kMostRequests = 64;
constexpr double kMostReadSeconds = 0.01;
constexpr char kCreated[] = "2026-11-15T05:36:24Z";

Result<double> best_seconds(const std::function<Status()>& work) {
  double best = 1e9;
  for (int i = 0; i < 5; ++i) {
    const double begin = now_seconds();
    DW_RETURN_IF_ERROR(work());
    best = std::min(best, now_seconds() - begin);
  }
  return best;
}

// ---- a chain of records alone: what finding the head and planning look at

// Versions of a model of 1 GB, of which each changes 1 %: an anchor every 256 of them and merged
// deltas of 4, 16 and 64, as `compact` and `publish --anchor-every 256` leave them.
class RecordChain {
 public:
  static Result<RecordChain> make(uint64_t versions, const Progress& progress) {
    RecordChain made;
    DW_ASSIGN_OR_RETURN(const Chain chain, create_chain(made.memory, {}, false));
    DW_ASSIGN_OR_RETURN(const PartRef schema, put_schema(chain, {{{"w", DType::kU8, {1}}}}));
    for (uint64_t version = 0; version < versions; ++version) {
      if (!progress(version, versions)) return cancelled("stopped on request");
      DW_RETURN_IF_ERROR(made.add_version(chain, schema, version));
      DW_RETURN_IF_ERROR(made.add_hops(chain.run(), version));
    }
    return made;
  }

  // Writes every object below `folder`, as a directory store has them, without syncing.
  Status write_to(const fs::path& folder) const {
    Status failed;
    DW_RETURN_IF_ERROR(list_all(*memory, "", "", [&](const ObjectInfo& object) {
      const Result<std::string> bytes = memory->get(object.name, object.size_bytes);
      const fs::path path = folder / object.name;
      std::error_code ignored;
      fs::create_directories(path.parent_path(), ignored);
      std::ofstream out(path, std::ios::binary);
      if (!bytes.ok() || !(out << *bytes).flush())
        failed = io_error(path.string() + ": cannot write");
      return failed.ok();
    }));
    return failed;
  }

  const std::shared_ptr<MemoryStore> memory = std::make_shared<MemoryStore>();
  std::vector<Digest> manifests;  // by version

 private:
  static constexpr uint64_t kWholeBytes = 1'000'000'000, kDeltaBytes = 10'000'000;

  static uint64_t chain_bytes(uint64_t version) { return kWholeBytes + version * kDeltaBytes; }
  static std::vector<PartRef> one_part(const std::string& folder, uint64_t bytes) {
    return {{folder + "part-00000.safetensors", bytes, record_digest("part")}};
  }

  Status add_version(const Chain& chain, const PartRef& schema, uint64_t version) {
    Manifest m;
    const bool whole = version == 0;
    m.run = chain.run();
    m.version = version;
    m.kind = whole ? VersionKind::kFull : VersionKind::kDelta;
    if (whole) m.reason = "seed";
    if (!whole) m.base = version - 1;
    if (!whole) m.parent = manifests.back();
    m.created = kCreated;
    m.publisher = "bench:1";
    m.parts = one_part(whole ? full_folder(version, "aa") : part_folder(version, "aa"),
                       whole ? kWholeBytes : kDeltaBytes);
    m.schema = schema;
    m.digests = {digest_of(DigestKind::kSum128, {})};
    m.state = m.digests[0];
    m.chain_bytes = chain_bytes(version);
    m.anchor = anchor_;
    m.anchor_bytes = kWholeBytes;
    m.codec = "auto";
    const Commit committed = commit_version(chain, m);
    manifests.push_back(committed.digest);
    return committed.status;
  }

  Status add_hops(const std::string& run, uint64_t version) {
    for (const uint64_t span : {4, 16, 64}) {
      if (version == 0 || version % span != 0) continue;
      DW_RETURN_IF_ERROR(add_hop(run, version - span, version, kDeltaBytes * span * 3 / 4));
    }
    if (version == 0 || version % 256 != 0) return {};
    anchor_ = version;
    return add_hop(run, {}, version, kWholeBytes);
  }

  Status add_hop(const std::string& run, std::optional<uint64_t> base, uint64_t version,
                 uint64_t bytes) {
    HopRecord hop;
    hop.run = run;
    hop.version = version;
    hop.base = base;
    hop.manifest = manifests[version];
    if (base) hop.base_manifest = manifests[*base];
    hop.created = kCreated;
    hop.parts = one_part(base ? part_folder(version, "bb") : full_folder(version, "bb"), bytes);
    const HopName name{version, base, bytes, base ? chain_bytes(*base) : 0, chain_bytes(version)};
    DW_ASSIGN_OR_RETURN(const std::string text, serialise_hop(hop, {}));
    return memory->put(hop_name(name), MemoryBody(text));
  }

  uint64_t anchor_ = 0;
};

// ---- what a replica asks of it

// Finds the head, or plans from what is held to it.
struct ReplicaTask {
  std::string what;
  bool plans = false;
  std::optional<Held> held;
};

std::vector<ReplicaTask> tasks_of(const std::vector<Digest>& manifests) {
  const uint64_t head = manifests.size() - 1;
  const auto held = [&](uint64_t version) { return Held{version, manifests[version]}; };
  std::vector<ReplicaTask> tasks = {{"find the head", false, {}}};
  if (head >= 1) tasks.push_back({"plan, one behind", true, held(head - 1)});
  if (head >= 100) tasks.push_back({"plan, 100 behind", true, held(head - 100)});
  if (head >= 2) tasks.push_back({"plan, from version 0", true, held(0)});
  tasks.push_back({"plan, from nothing", true, {}});
  tasks.push_back({"find the head, no hint", false, {}});
  return tasks;
}

class VersionsBench {
 public:
  Status run(const Context& context, uint64_t versions, const std::string& parent) {
    ProgressBar bar(context, fmt::format("{} versions", human_count(versions)));
    DW_ASSIGN_OR_RETURN(const RecordChain made, RecordChain::make(versions, bar.callback()));
    DW_ASSIGN_OR_RETURN(const WorkFolder work, WorkFolder::make(parent));
    DW_RETURN_IF_ERROR(made.write_to(work.path()));
    const auto folder = std::make_shared<DirectoryStore>(work.path());
    for (const ReplicaTask& task : tasks_of(made.manifests)) {
      DW_RETURN_IF_ERROR(check_interrupted());
      if (task.what.ends_with("no hint")) {  // then it is found by looking
        DW_RETURN_IF_ERROR(made.memory->remove(kHeadName));
        DW_RETURN_IF_ERROR(folder->remove(kHeadName));
      }
      Plan plan;
      DW_ASSIGN_OR_RETURN(const double in_memory, measure(task, versions - 1, made.memory, &plan));
      DW_ASSIGN_OR_RETURN(const double in_folder, measure(task, versions - 1, folder, &plan));
      table.add({count_cell(versions),
                 text_cell(task.what),
                 count_cell(requests_),
                 {in_memory, fmt::format("{:.2f} ms", in_memory * 1e3)},
                 {in_folder, fmt::format("{:.2f} ms", in_folder * 1e3)},
                 count_cell(plan.hops.size()),
                 bytes_cell(plan.bytes)});
      most_requests = std::max(most_requests, requests_);
    }
    return {};
  }

  uint64_t most_requests = 0;
  BenchTable table{{{"versions", "versions"},
                    {"what", "what"},
                    {"requests", "requests"},
                    {"memory_seconds", "in memory"},
                    {"folder_seconds", "in a folder"},
                    {"hops", "hops"},
                    {"planned_bytes", "planned"}}};

 private:
  Result<double> measure(const ReplicaTask& task, uint64_t newest,
                         const std::shared_ptr<Store>& store, Plan* plan) {
    return best_seconds([&]() -> Status {
      const auto metrics = std::make_shared<StoreMetrics>();
      DW_ASSIGN_OR_RETURN(const Chain chain,
                          Chain::open(std::make_shared<MeteredStore>(store, metrics), {}));
      if (task.plans) {
        DW_ASSIGN_OR_RETURN(*plan, plan_catch_up(chain, task.held, newest));
      } else {
        DW_ASSIGN_OR_RETURN(const std::optional<uint64_t> head, chain.head());
        if (head != newest) return internal_error(task.what + ": found another version");
      }
      requests_ = metrics->total().calls;
      return {};
    });
  }

  uint64_t requests_ = 0;  // of the last task
};

// ---- the records of a model of many tensors

Schema schema_of(uint64_t tensors) {
  constexpr uint64_t kExperts = 256;
  static constexpr const char* kParts[] = {"gate_proj", "up_proj", "down_proj"};
  Schema schema;
  for (uint64_t i = 0; i < tensors; ++i) {
    schema.tensors.push_back({fmt::format("model.layers.{}.mlp.experts.{}.{}.weight",
                                          i / 3 / kExperts, i / 3 % kExperts, kParts[i % 3]),
                              DType::kBF16,
                              {2048, 7168}});
  }
  std::sort(schema.tensors.begin(), schema.tensors.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return schema;
}

Manifest manifest_of(const Schema& schema, const std::string& schema_text) {
  Manifest m;
  m.run = std::string(32, 'a');
  m.version = 1234;
  m.base = 1233;
  m.parent = record_digest("parent");
  m.created = kCreated;
  m.publisher = "bench:1";
  for (uint64_t i = 0; i < 16; ++i) {
    m.parts.push_back({part_folder(m.version, "aa") + fmt::format("part-{:05}.safetensors", i),
                       64 << 20, record_digest("part")});
    m.chain_bytes += m.parts.back().size_bytes;
  }
  const Digest sha256 = record_digest(schema_text);
  m.schema = {schema_name(sha256.hex()), schema_text.size(), sha256};
  for (const Schema::Tensor& tensor : schema.tensors) {
    const Bytes name{reinterpret_cast<const uint8_t*>(tensor.name.data()), tensor.name.size()};
    m.digests.push_back(digest_of(DigestKind::kSum128, name));
  }
  m.state = state_digest(states_of(schema, m).value());  // as many digests as tensors
  m.codec = "auto";
  return m;
}

Result<Json> measure_records(const Context& context, uint64_t tensors) {
  const Schema schema = schema_of(tensors);
  const std::string schema_text = serialise_schema(schema);
  const Manifest manifest = manifest_of(schema, schema_text);
  DW_ASSIGN_OR_RETURN(const std::string text, serialise_manifest(manifest, {}));
  DW_ASSIGN_OR_RETURN(const double read,
                      best_seconds([&] { return parse_manifest(text, {}).status(); }));
  DW_ASSIGN_OR_RETURN(const double written,
                      best_seconds([&] { return serialise_manifest(manifest, {}).status(); }));
  DW_ASSIGN_OR_RETURN(const double schema_read,
                      best_seconds([&] { return parse_schema(schema_text).status(); }));
  context.say(fmt::format(
      "\nmanifest  of {}: {}, {:.1f} bytes for each; read in {:.2f} ms, written in {:.2f} ms",
      plural(tensors, "tensor"), human_bytes(double(text.size())),
      double(text.size()) / double(tensors), read * 1e3, written * 1e3));
  context.say(fmt::format("schema    {}, {:.1f} bytes for each; read in {:.2f} ms",
                          human_bytes(double(schema_text.size())),
                          double(schema_text.size()) / double(tensors), schema_read * 1e3));
  return Json{{"tensors", tensors},
              {"manifest_bytes", text.size()},
              {"schema_bytes", schema_text.size()},
              {"read_manifest_seconds", read},
              {"write_manifest_seconds", written},
              {"read_schema_seconds", schema_read}};
}

}  // namespace

Status bench_versions(const Context& context, const BenchOptions& options) {
  VersionsBench bench;
  for (const uint64_t versions : options.versions) {
    DW_RETURN_IF_ERROR(bench.run(context, versions, options.folder));
  }
  say_machine(context);
  bench.table.say(context);
  DW_ASSIGN_OR_RETURN(const Json records, measure_records(context, options.tensors));
  const bool few = bench.most_requests <= kMostRequests;
  const bool quick = records["read_manifest_seconds"].get<double>() <= kMostReadSeconds;
  context.say(
      fmt::format("goals     at most {} requests for each: {}; a manifest read in 10 ms: {}",
                  kMostRequests, few ? "met" : "MISSED", quick ? "met" : "MISSED"));
  context.emit(
      {{"machine", this_machine()},
       {"rows", bench.table.json()},
       {"records", records},
       {"goals",
        {{"most_requests", bench.most_requests}, {"requests_met", few}, {"read_met", quick}}}});
  return {};
}

}  // namespace deltawire::cli
