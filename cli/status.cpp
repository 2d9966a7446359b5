// Shows the versions of local checkpoints, and of a chain and all replicas with heartbeats.
#include <fmt/format.h>

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <map>

#include "base/clock.h"
#include "cli/options.h"
#include "cli/table.h"
#include "cli/verbs.h"
#include "deltawire/chain.h"
#include "deltawire/checkpoint.h"
#include "deltawire/replica.h"
#include "replica/journal.h"
#include "replica/local_state.h"
#include "tensor/text.h"

namespace deltawire::cli {
namespace {

struct StatusArguments {
  std::vector<std::string> places;
  StoreOptions store_options;
  bool watch = false, force = false;
  double interval = 3;
  std::string forget;  // a replica's name
};

// The result of one round.
struct Page {
  std::vector<std::string> lines;
  Json all = Json::array();
  bool elsewhere = false;  // a live replica holds a version that is not in its store
  Status failure;          // the first
};

int64_t age_of(int64_t then) { return std::max<int64_t>(0, unix_seconds() - then); }

Json identity_json(const std::optional<Identity>& identity) {
  if (!identity) return nullptr;
  return {{"run", identity->run}, {"version", identity->version}, {"manifest", identity->manifest}};
}

std::string or_dash(const std::optional<uint64_t>& value) {
  return value ? std::to_string(*value) : "-";
}

Json show_local(Page* page, const std::string& place, const ReplicaState& state) {
  const int64_t updated = parse_utc(state.updated);
  page->lines.push_back(fmt::format(
      "{}: version {}{}, serving {}, run {}, {}", place, state.version,
      state.patching_to ? fmt::format(" (being patched to {}; if that was interrupted, the next "
                                      "pull finishes it)",
                                      *state.patching_to)
                        : "",
      state.serving ? std::to_string(state.serving->version) : "not known", state.run,
      age_text(age_of(updated))));
  return {{"local", place},
          {"run", state.run},
          {"version", state.version},
          {"patching_to", or_null(state.patching_to)},
          {"serving", identity_json(state.serving)},
          {"manifest", state.manifest},
          {"state", state.state},
          {"updated", state.updated},
          {"age_seconds", age_of(updated)}};
}

// A replica's folder without a state record: the first pull did not finish, or the record was
// removed.
Json show_unrecorded(Page* page, const std::string& place) {
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
  page->lines.push_back(std::move(line));
  Json json = {{"local", place}, {"run", nullptr}, {"version", nullptr}, {"patching_to", nullptr}};
  if (journal.ok()) {
    json["run"] = journal->run;
    json["patching_to"] = journal->version;
  }
  json["files"] = files;
  return json;
}

std::string seen_text(const ListedHeartbeat& listed, const Standing& standing) {
  const Heartbeat& beat = *listed.heartbeat;
  std::string text = age_text(listed.age_seconds);
  if (listed.is_gone()) text += ", gone";
  if (!standing.remark.empty()) text += ", " + standing.remark;
  if (beat.serving && beat.held && beat.serving->run != beat.held->run) {
    text += fmt::format(", serves run {}", beat.serving->run.substr(0, 8));
  }
  if (beat.lease && !listed.is_gone()) text += fmt::format(", fetching {}", beat.lease->to);
  if (!beat.lease && !beat.error.empty()) text += ", failed: " + escape_controls(beat.error);
  return text;
}

Json to_json(const ListedHeartbeat& listed, const Standing& standing) {
  const Heartbeat& beat = *listed.heartbeat;
  Json json = {{"name", beat.name},
               {"host", beat.host},
               {"pid", beat.pid},
               {"held", identity_json(beat.held)},
               {"standing", standing.word},
               {"lag", or_null(standing.lag)},
               {"serving", identity_json(beat.serving)},
               {"seen", beat.seen},
               {"age_seconds", listed.age_seconds},
               {"interval_seconds", beat.interval_seconds},
               {"gone", listed.is_gone()}};
  if (beat.lease) json["fetching"] = beat.lease->to;
  if (!beat.error.empty()) json["error"] = beat.error;
  return json;
}

// Adds a line for each replica; returns them for --json.
Result<Json> show_replicas(Page* page, const std::vector<ListedHeartbeat>& beats,
                           Standings* standings) {
  Json replicas = Json::array();
  size_t width = 8;
  for (const ListedHeartbeat& listed : beats) {
    if (listed.heartbeat.ok()) {
      width = std::max(width, shown_replica(listed.heartbeat->name).size());
    }
  }
  if (!beats.empty()) {
    page->lines.push_back(fmt::format("  {:{}}  {:>8}  {:>6}  {:>8}  {}", "replica", width,
                                      "version", "lag", "serving", "seen"));
  }
  for (const ListedHeartbeat& listed : beats) {
    if (!listed.heartbeat.ok()) {
      const std::string why = listed.heartbeat.status().to_string();
      page->lines.push_back(fmt::format("  {:{}}  {}{}, cannot be read: {}", listed.object.name,
                                        width, age_text(listed.age_seconds),
                                        listed.is_gone() ? ", gone" : "", escape_controls(why)));
      replicas.push_back({{"object", listed.object.name},
                          {"age_seconds", listed.age_seconds},
                          {"gone", listed.is_gone()},
                          {"error", why}});
      continue;
    }
    const Heartbeat& beat = *listed.heartbeat;
    DW_ASSIGN_OR_RETURN(const Standing standing, standings->of(beat));
    page->elsewhere = page->elsewhere || (standing.elsewhere && !listed.is_gone());
    page->lines.push_back(fmt::format("  {:{}}  {:>8}  {:>6}  {:>8}  {}", shown_replica(beat.name),
                                      width, or_dash(version_of(beat.held)), or_dash(standing.lag),
                                      or_dash(version_of(beat.serving)),
                                      seen_text(listed, standing)));
    replicas.push_back(to_json(listed, standing));
  }
  return replicas;
}

Result<Json> show_store(Page* page, const std::shared_ptr<Store>& store) {
  DW_ASSIGN_OR_RETURN(const Chain chain, Chain::open(store));
  DW_ASSIGN_OR_RETURN(const std::optional<uint64_t> head, chain.head());
  DW_ASSIGN_OR_RETURN(const std::vector<ListedHeartbeat> beats, chain.replicas());
  Json json = {{"store", store->url()}, {"run", chain.run()}, {"head", or_null(head)}};
  std::string line = fmt::format("{}: head {}, run {}", store->url(),
                                 head ? std::to_string(*head) : "none", chain.run());
  std::optional<Identity> newest;
  if (head) {
    DW_ASSIGN_OR_RETURN(const VersionRecord record, chain.version(*head));
    newest = record.identity();
    json["created"] = record.manifest.created;
    json["publisher"] = record.manifest.publisher;
    line += ", published " + age_text(age_of(parse_utc(record.manifest.created)));
  }
  page->lines.push_back(std::move(line));
  Standings standings(chain, newest);
  DW_ASSIGN_OR_RETURN(json["replicas"], show_replicas(page, beats, &standings));
  return json;
}

class Looker {
 public:
  explicit Looker(const StatusArguments& options) : options_(options) {}

  Page look() {
    Page page;
    for (const std::string& place : options_.places) {
      Result<Json> shown = show(&page, place);
      if (shown.ok()) {
        page.all.push_back(std::move(*shown));
      } else if (page.failure.ok()) {
        page.failure = shown.status();
      }
    }
    return page;
  }

 private:
  Result<Json> show(Page* page, const std::string& place) {
    if (!is_store_url(place)) {
      const Result<ReplicaState> state = read_replica_state(place);
      if (state.ok()) return show_local(page, place, *state);
      if (state.status().code() == Code::kCorruption) {
        return corruption(state.status().message() +
                          "; the next pull finds out from the files which version they are");
      }
      if (state.status().code() != Code::kNotFound) return state.status();
      std::error_code error;
      if (std::filesystem::exists(LocalLayout{place}.own(), error)) {
        return show_unrecorded(page, place);
      }
    }
    std::shared_ptr<Store>& store = stores_[place];
    if (store == nullptr) {
      DW_ASSIGN_OR_RETURN(store, open_store(place, options_.store_options));
    }
    Result<Json> shown = show_store(page, store);
    if (!shown.ok() && shown.status().code() == Code::kNotFound && !is_store_url(place)) {
      return not_found(place + ": neither a replica's folder nor a store");
    }
    return shown;
  }

  const StatusArguments& options_;
  std::map<std::string, std::shared_ptr<Store>> stores_;  // opened once and reused
};

bool is_screen() {
  const char* const term = std::getenv("TERM");
  return ::isatty(STDOUT_FILENO) != 0 && term != nullptr && std::string_view(term) != "dumb";
}

// Repeats until Ctrl-C. A failure of the first round ends it; later failures are shown and may
// pass.
int watch(const Context& context, const StatusArguments& options) {
  std::signal(SIGPIPE, SIG_IGN);  // `| head` ends it like Ctrl-C
  Looker looker(options);
  const bool redraw = is_screen() && !context.json && !context.quiet;
  for (bool first = true; !was_interrupted(); first = false) {
    const Page page = looker.look();
    if (was_interrupted()) break;
    if (first && !page.failure.ok()) return context.fail(page.failure);
    if (redraw) print_out("\033[H\033[2J");
    context.print("{}{}", utc_text(unix_seconds()), redraw ? ", Ctrl-C ends" : "");
    for (const std::string& line : page.lines) context.say(line);
    Json json = {{"time", unix_seconds()}, {"status", page.all}};
    if (!page.failure.ok()) {
      context.say("error: " + escape_controls(page.failure.to_string()));
      json["error"] = page.failure.to_string();
    }
    context.emit(json);
    flush_out();
    if (!can_print()) return context.succeed();  // the reader has closed the pipe
    sleep_seconds(options.interval);
  }
  return context.succeed();
}

// The replica's real name for a name as shown, since escaped names cannot be typed.
Result<std::string> typed_name(const Chain& chain, const std::string& typed) {
  DW_ASSIGN_OR_RETURN(const std::vector<ListedHeartbeat> all, chain.replicas());
  for (const ListedHeartbeat& listed : all) {
    if (listed.heartbeat.ok() && shown_replica(listed.heartbeat->name) == typed) {
      return listed.heartbeat->name;
    }
  }
  return typed;
}

Status forget(const Context& context, const StatusArguments& options) {
  if (options.places.size() != 1) return invalid_argument("--forget takes one store");
  DW_ASSIGN_OR_RETURN(const auto store, open_store(options.places[0], options.store_options));
  DW_ASSIGN_OR_RETURN(const Chain chain, Chain::open(store));
  DW_ASSIGN_OR_RETURN(const std::string name, typed_name(chain, options.forget));
  DW_ASSIGN_OR_RETURN(const uint64_t removed, chain.forget(name, options.force));
  context.print("forgotten: replica {}, {}", shown_replica(options.forget),
                plural(removed, "heartbeat"));
  context.emit({{"name", options.forget}, {"removed", removed}});
  return {};
}

int status(const Context& context, const StatusArguments& options) {
  if (options.watch) return watch(context, options);
  if (!options.forget.empty()) return context.finish(forget(context, options));
  const Page page = Looker(options).look();
  for (const std::string& line : page.lines) context.say(line);
  if (!page.failure.ok()) return context.fail(page.failure);
  context.emit({{"status", page.all}});
  return page.elsewhere ? int(Code::kBaseMismatch) : context.succeed();
}

}  // namespace

void add_status(Command& app, Context& context, Call* call) {
  Command* verb = make_verb(
      app, context, "status", "Show which version each replica and engine has",
      "  deltawire status ckpt/\n"
      "  deltawire status s3://bucket/run           head, replicas, their lag\n"
      "  deltawire status s3://bucket/run --watch   again every few seconds\n"
      "  deltawire status ckpt-1/ ckpt-2/ --json\n"
      "  deltawire status s3://bucket/run --forget rollout-3\n"
      "Exit status 7: a live replica holds another run than its store, or another history.");
  auto* const options = set_call(verb, context, call, status);
  verb->add_option("PLACE", options->places, "folders of replicas, and stores")->required();
  Option* const watch = verb->add_flag("--watch", options->watch,
                                       "refresh until Ctrl-C; with --json, one object per refresh");
  add_seconds(verb, "--interval", &options->interval, "seconds between refreshes (default 3)", 0.1,
              86400);
  Option* const forget = verb->add_option("--forget", options->forget,
                                          "remove the heartbeat of this replica, if it is gone")
                             ->type_name("NAME")
                             ->excludes(watch);
  verb->add_flag("--force", options->force, "with --forget: even if the replica is alive")
      ->needs(forget);
  add_store_options(verb, &options->store_options);
}

}  // namespace deltawire::cli
