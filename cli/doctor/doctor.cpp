#include <fmt/format.h>

#include "base/json.h"
#include "cli/doctor/checks.h"
#include "cli/next_step.h"
#include "cli/options.h"
#include "cli/table.h"
#include "cli/verbs.h"
#include "deltawire/checkpoint.h"
#include "tensor/text.h"

namespace deltawire::cli {
namespace doctor {

constexpr int kLevelWidth = 4, kWhatWidth = 13;

void Checks::add(std::string_view level, std::string_view what, std::string_view detail,
                 std::string_view next, Json values) {
  context_.print("{:<{}}  {:<{}}  {}", level, kLevelWidth, what, kWhatWidth,
                 escape_controls(detail));
  if (!next.empty()) {
    context_.print("{:<{}}next: {}", "", kLevelWidth + kWhatWidth + 4, escape_controls(next));
  }
  if (!context_.json) flush_out();
  Json one = {{"level", level}, {"what", what}, {"detail", detail}};
  if (!next.empty()) one["next"] = next;
  if (values.is_object()) one.update(values);
  all_.push_back(std::move(one));
}

void Checks::ok(std::string_view what, std::string_view detail, const Json& values) {
  add("ok", what, detail, "", values);
}

void Checks::warn(std::string_view what, std::string_view detail, std::string_view next,
                  const Json& values) {
  ++num_warned_;
  add("warn", what, detail, next, values);
}

void Checks::fail(std::string_view what, const Status& status, std::string next) {
  if (num_failed_++ == 0) first_failure_ = status;
  if (next.empty()) next = next_step(status, "doctor");
  add("fail", what, status.to_string(), next, {{"code", code_name(status.code())}});
}

int Checks::finish() const {
  context_.print("{}",
                 num_failed_ + num_warned_ == 0
                     ? "all is fine"
                     : fmt::format("{} failed, {}", num_failed_, plural(num_warned_, "warning")));
  context_.emit({{"healthy", num_failed_ == 0}, {"checks", all_}});
  if (num_failed_ != 0 && context_.quiet && !context_.json) return context_.fail(first_failure_);
  return int(was_interrupted() ? Code::kCancelled : first_failure_.code());
}

namespace {

struct Arguments {
  StoreTarget store;
  const Option* store_named = nullptr;  // "" is a mistake, and not left out
  Needs needs;
  std::string model;
  std::vector<std::string> engines;
  Json package = Json::array();  // what the Python package has found
};

uint64_t bytes_of(const Checkpoint& checkpoint) {
  uint64_t bytes = 0;
  for (const CheckpointFile& file : checkpoint.files()) bytes += file.bytes.size();
  return bytes;
}

int run(const Context& context, Arguments& options) {
  Checks checks(context);
  if (!options.model.empty()) {
    const Result<Checkpoint> checkpoint = Checkpoint::open(options.model);
    if (!checkpoint.ok()) return context.fail(checkpoint.status());
    options.needs.model_bytes = bytes_of(*checkpoint);
  }
  check_machine(&checks, options.needs);
  for (const Json& one : options.package) {
    const std::string what = one["what"], detail = one["detail"], next = one["next"];
    next.empty() ? checks.ok(what, detail) : checks.warn(what, detail, next);
  }
  if (options.store_named->given()) check_store(&checks, options.store);
  for (const std::string& url : options.engines) {
    if (was_interrupted()) break;
    check_engine(&checks, url, options.store.options.call_timeout_seconds);
  }
  if (was_interrupted()) checks.fail("doctor", check_interrupted());
  return checks.finish();
}

// "8B": parameters in two bytes each.
uint64_t parse_params(const std::string& text) {
  const Result<uint64_t> count = parse_count(text);
  if (!count.ok() || *count == 0 || *count > uint64_t{1} << 60) {
    refuse_value("--params", "a number of parameters, such as 8B or 500M, expected; got " + text);
  }
  return 2 * *count;
}

// [{"what": "torch", "detail": "2.9.1", "next": ""}, ...]; an entry with a next step is a warning.
Json parse_package(const std::string& text) {
  Json list = parse_json(text);
  bool good = list.is_array();
  for (const Json& one : good ? list : Json::array()) {
    for (const char* const key : {"what", "detail", "next"}) {
      good = good && one.is_object() && one.contains(key) && one[key].is_string();
    }
  }
  if (!good) refuse_value("--package-checks", "is for the Python package alone");
  return list;
}

}  // namespace
}  // namespace doctor

void add_doctor(Command& app, Context& context, Call* call) {
  Command* verb = make_verb(
      app, context, "doctor", "Check this machine, a store and engines, and say what to do",
      "  deltawire doctor                          this machine\n"
      "  deltawire doctor s3://bucket/run          rights, speed, clock, replicas\n"
      "  deltawire doctor s3://bucket/run --read-only --local /models/local --params 8B\n"
      "  deltawire doctor --engine http://gpu-1:8000 --engine http://gpu-2:8000 --json\n"
      "The store gets objects under doctor/, of 8 MB at most, which are removed again. A request "
      "ends after 15 s (--timeout), and is tried twice (--retries 1). Exit status 0: nothing "
      "failed, warnings aside; else that of what failed first.");
  auto* const options = set_call(verb, context, call, doctor::run);
  options->store.options.call_timeout_seconds = 15;  // of a server that is not there
  options->store.options.retries = 1;
  options->store_named = verb->add_option("STORE", options->store.url,
                                          "a folder, s3://BUCKET/PREFIX or http://HOST:PORT");
  verb->add_flag("--read-only", options->store.read_only, "put nothing into the store");
  verb->add_option("--engine", options->engines,
                   "also ask this vLLM or SGLang server; may be repeated. A key comes from "
                   "DELTAWIRE_ENGINE_API_KEY")
      ->type_name("URL")
      ->repeatable();
  verb->add_option("--local", options->needs.local, "also check the disk of this replica's folder")
      ->type_name("FOLDER");
  Option* const model =
      verb->add_option("--model", options->model, "check memory and disks for this checkpoint")
          ->type_name("CKPT");
  verb->add_parsed(
          "--params",
          [options](const std::string& text) {
            options->needs.model_bytes = doctor::parse_params(text);
          },
          "the same for a model of so many parameters in 16 bits: 500M, 8B")
      ->type_name("N")
      ->excludes(model);
  verb->add_parsed(
          "--package-checks",
          [options](const std::string& text) { options->package = doctor::parse_package(text); },
          "")
      ->group("");
  add_store_options(verb, &options->store.options);
}

}  // namespace deltawire::cli
