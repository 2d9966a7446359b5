// Which version is where: of local checkpoints, and of a chain with all replicas that left a note.
#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "cli/store_options.h"
#include "cli/units.h"
#include "cli/verbs.h"
#include "deltawire/chain.h"
#include "deltawire/checkpoint.h"
#include "deltawire/replica.h"
#include "replica/journal_record.h"
#include "replica/local_layout.h"
#include "tensor/text.h"

namespace deltawire::cli {
namespace {

using Json = nlohmann::ordered_json;

struct StatusArguments {
  std::vector<std::string> places;
  StoreOptions store_options;
};

int64_t unix_now() { return int64_t(std::time(nullptr)); }

std::string ago(int64_t then) {
  const int64_t age = std::max<int64_t>(0, unix_now() - then);
  if (age < 120) return fmt::format("{} s ago", age);
  if (age < 120 * 60) return fmt::format("{} min ago", age / 60);
  if (age < 48 * 3600) return fmt::format("{} h ago", age / 3600);
  return fmt::format("{} days ago", age / 86400);
}

int64_t parse_utc(const std::string& text) {
  std::tm parts{};
  const char* end = ::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return end == nullptr ? 0 : int64_t(::timegm(&parts));
}

Json optional_json(const std::optional<uint64_t>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json identity_json(const std::optional<Identity>& identity) {
  if (!identity) return nullptr;
  return {{"run", identity->run}, {"version", identity->version}, {"manifest", identity->manifest}};
}

std::string or_dash(const std::optional<uint64_t>& value) {
  return value ? std::to_string(*value) : "-";
}

bool is_url(const std::string& place) { return place.find("://") != std::string::npos; }

Json show_local(const Context& context, const std::string& place, const ReplicaState& state) {
  const int64_t updated = parse_utc(state.updated);
  context.say(fmt::format(
      "{}: version {}{}, serving {}, run {}, {}", place, state.version,
      state.patching_to ? fmt::format(" (being patched to {}; if that was interrupted, the next "
                                      "pull finishes it)",
                                      *state.patching_to)
                        : "",
      state.serving ? std::to_string(state.serving->version) : "not known", state.run, ago(updated)));
  return {{"local", place},
          {"run", state.run},
          {"version", state.version},
          {"patching_to", optional_json(state.patching_to)},
          {"serving", identity_json(state.serving)},
          {"manifest", state.manifest},
          {"state", state.state},
          {"updated", state.updated},
          {"age_seconds", std::max<int64_t>(0, unix_now() - updated)}};
}

// A replica's folder without a record of what it holds: a first pull that did not come to its end,
// or somebody has removed the record.
Json show_unrecorded(const Context& context, const std::string& place) {
  const LocalLayout layout{place};
  const Result<JournalRecord> journal = read_journal_record(layout.journal());
  const bool files = Checkpoint::open(layout.root).ok() || !version_folders(layout.root).empty();
  std::string line = place + ": no version is recorded";
  if (journal.ok()) {
    line += fmt::format("; a pull to version {} was interrupted, the next one finishes it",
                        journal->version);
  } else if (files) {
    line += ", and there are files; the next pull finds out which version they are";
  } else {
    line += "; a first pull is under way, or was interrupted";
  }
  context.say(line);
  Json json = {{"local", place}, {"run", nullptr}, {"version", nullptr}, {"patching_to", nullptr}};
  if (journal.ok()) {
    json["run"] = journal->run;
    json["patching_to"] = journal->version;
  }
  json["files"] = files;
  return json;
}

// How far a replica is behind; none: it is not on the way to the head.
std::optional<uint64_t> lag_of(const std::optional<Identity>& head,
                               const std::optional<Identity>& held) {
  if (!head || !held || head->run != held->run || head->version < held->version) return {};
  return head->version - held->version;
}

// Whoever may write a heartbeat chooses its name.
std::string shown_name(const Heartbeat& beat) {
  constexpr size_t kMost = 100;
  std::string name = escape_controls(beat.name);
  if (name.size() > kMost) name = name.substr(0, kMost) + "...";
  return name;
}

Json show_heartbeat(const Context& context, const std::optional<Identity>& head,
                    const ListedHeartbeat& listed, size_t name_width) {
  if (!listed.heartbeat.ok()) {
    const std::string why = listed.heartbeat.status().to_string();
    context.say(fmt::format("  {:{}}  {}", listed.object.name, name_width, escape_controls(why)));
    return {{"object", listed.object.name}, {"error", why}};
  }
  const Heartbeat& beat = *listed.heartbeat;
  const std::optional<uint64_t> lag = lag_of(head, beat.held);
  context.say(fmt::format("  {:{}}  {:>8}  {:>6}  {:>8}  {}{}", shown_name(beat), name_width,
                          or_dash(version_of(beat.held)), or_dash(lag),
                          or_dash(version_of(beat.serving)),
                          ago(beat.seen),
                          beat.lease            ? fmt::format(", fetching {}", beat.lease->to)
                          : !beat.error.empty() ? ", failed: " + escape_controls(beat.error)
                                                : ""));
  Json json = {
      {"name", beat.name},         {"host", beat.host},
      {"pid", beat.pid},           {"held", identity_json(beat.held)},
      {"lag", optional_json(lag)}, {"serving", identity_json(beat.serving)},
      {"seen", beat.seen},         {"age_seconds", std::max<int64_t>(0, unix_now() - beat.seen)}};
  if (beat.lease) json["fetching"] = beat.lease->to;
  if (!beat.error.empty()) json["error"] = beat.error;
  return json;
}

Result<Json> show_store(const Context& context, const std::string& place,
                        const StoreOptions& options) {
  DW_ASSIGN_OR_RETURN(const std::shared_ptr<Store> store, open_store(place, options));
  DW_ASSIGN_OR_RETURN(const Chain chain, Chain::open(store));
  DW_ASSIGN_OR_RETURN(const std::optional<uint64_t> head, chain.head());
  DW_ASSIGN_OR_RETURN(const std::vector<ListedHeartbeat> beats, chain.replicas());
  Json json = {{"store", store->url()}, {"run", chain.run()}, {"head", optional_json(head)}};
  std::string line = fmt::format("{}: head {}, run {}", store->url(),
                                 head ? std::to_string(*head) : "none", chain.run());
  std::optional<Identity> newest;
  if (head) {
    DW_ASSIGN_OR_RETURN(const VersionRecord record, chain.version(*head));
    newest = record.identity();
    json["created"] = record.manifest.created;
    json["publisher"] = record.manifest.publisher;
    line += ", published " + ago(parse_utc(record.manifest.created));
  }
  context.say(line);
  size_t width = 8;
  for (const ListedHeartbeat& listed : beats) {
    if (listed.heartbeat.ok()) width = std::max(width, shown_name(*listed.heartbeat).size());
  }
  if (!beats.empty()) {
    context.say(fmt::format("  {:{}}  {:>8}  {:>6}  {:>8}  {}", "replica", width, "version", "lag",
                            "serving", "seen"));
  }
  Json replicas = Json::array();
  for (const ListedHeartbeat& listed : beats) {
    replicas.push_back(show_heartbeat(context, newest, listed, width));
  }
  json["replicas"] = std::move(replicas);
  return json;
}

Result<Json> show(const Context& context, const std::string& place, const StoreOptions& options) {
  if (!is_url(place)) {
    const Result<ReplicaState> state = read_replica_state(place);
    if (state.ok()) return show_local(context, place, *state);
    if (state.status().code() == Code::kCorruption) {
      return corruption(state.status().message() +
                        "; the next pull finds out from the files which version they are");
    }
    if (state.status().code() != Code::kNotFound) return state.status();
    std::error_code error;
    if (std::filesystem::exists(LocalLayout{place}.own(), error)) {
      return show_unrecorded(context, place);
    }
  }
  Result<Json> shown = show_store(context, place, options);
  if (!shown.ok() && shown.status().code() == Code::kNotFound && !is_url(place)) {
    return not_found(place + ": neither a replica's folder nor a store");
  }
  return shown;
}

int status(const Context& context, const StatusArguments& options) {
  Json all = Json::array();
  Status failure;
  for (const std::string& place : options.places) {
    Result<Json> shown = show(context, place, options.store_options);
    if (shown.ok()) {
      all.push_back(std::move(*shown));
    } else if (failure.ok()) {
      failure = shown.status();
    }
  }
  if (!failure.ok()) return context.fail(failure);
  context.emit({{"status", std::move(all)}});
  return context.succeed();
}

}  // namespace

void add_status(Command& app, Context& context, Call* call) {
  Command* verb =
      make_verb(app, context, "status", "Show which version each replica and engine has",
                "  deltawire status ckpt/\n"
                "  deltawire status s3://bucket/run       head, and every replica with its lag\n"
                "  deltawire status ckpt-1/ ckpt-2/ --json");
  auto options = std::make_shared<StatusArguments>();
  verb->add_option("PLACE", options->places, "folders of replicas, and stores")->required();
  add_store_options(verb, &options->store_options);
  verb->callback([&context, call, options] {
    *call = [&context, options] { return status(context, *options); };
  });
}

}  // namespace deltawire::cli
