// The model behind codec "fastest", with rates given: no clock in here.
#include "publish/codec_choice.h"

#include <gtest/gtest.h>

#include <cmath>

#include "publish/codec_rates.h"
#include "publish/codec_sample.h"
#include "test_files.h"

namespace deltawire {
namespace {

LinkRates both_ways(double bytes_per_second) {
  return {{bytes_per_second, "measured"}, {bytes_per_second, "assumed the same"}};
}

// One gigabyte of bf16, 1.2 % changed, on two cores.
const std::vector<CodecForecast> kSparse = {
    {"tight", 0.5, 0.45, 5.3e6}, {"gaps", 0.2, 0.1, 24e6}, {"raw", 0.4, 0.2, 1e9}};
// The same where nine of ten elements changed.
const std::vector<CodecForecast> kDense = {
    {"tight", 3, 3, 0.8e9}, {"gaps", 1, 0.8, 3.6e9}, {"raw", 0.4, 0.2, 1e9}};

std::string choice(const std::vector<CodecForecast>& forecasts, const LinkRates& link,
                   std::string_view before = "") {
  return choose_codec(forecasts, link, before).codec;
}

TEST(CodecChoice, EncodeAndUploadOverlapAndSoDoDownloadAndApply) {
  const LinkRates link = {{1e6, ""}, {2e6, ""}};
  EXPECT_DOUBLE_EQ(seconds_until_applied({"x", 3, 0.5, 4e6}, link), 4 + 2);
  EXPECT_DOUBLE_EQ(seconds_until_applied({"x", 9, 7, 4e6}, link), 9 + 7);
}

TEST(CodecChoice, SlowLinksGetTheSmallestAndFastOnesTheQuickest) {
  EXPECT_EQ(choice(kSparse, both_ways(1e6)), "tight");
  EXPECT_EQ(choice(kSparse, both_ways(10e6)), "tight");
  EXPECT_EQ(choice(kSparse, both_ways(1e9)), "gaps");
  EXPECT_EQ(choice(kSparse, both_ways(25e9)), "gaps");
}

TEST(CodecChoice, RawPaysWhereMostElementsChangedAndTheLinkIsFast) {
  EXPECT_EQ(choice(kDense, both_ways(25e9)), "raw");
  EXPECT_EQ(choice(kDense, both_ways(10e6)), "tight");
}

TEST(CodecChoice, TheReplicasLinkCountsAsMuchAsThePublishers) {
  EXPECT_EQ(choice(kSparse, {{25e9, ""}, {10e6, ""}}), "tight");
  EXPECT_EQ(choice(kSparse, {{10e6, ""}, {25e9, ""}}), "tight");
}

TEST(CodecChoice, ASmallGainIsNoReasonToChange) {
  const std::vector<CodecForecast> close = {{"tight", 0.5, 0.5, 1}, {"gaps", 0.5, 0.42, 1}};
  const LinkRates link = both_ways(1e9);
  EXPECT_EQ(choice(close, link), "gaps");
  EXPECT_EQ(choice(close, link, "gaps"), "gaps");
  const CodecChoice kept = choose_codec(close, link, "tight");
  EXPECT_EQ(kept.codec, "tight");
  EXPECT_NE(kept.reason.find("stays with tight, because gaps would gain less than 10 %"),
            std::string::npos)
      << kept.reason;
  const std::vector<CodecForecast> apart = {{"tight", 0.5, 0.5, 1}, {"gaps", 0.5, 0.38, 1}};
  EXPECT_EQ(choice(apart, link, "tight"), "gaps");
  EXPECT_EQ(choice(apart, link, "raw"), "gaps");  // one that is no longer a candidate
}

TEST(CodecChoice, TheReasonHasTimesAndRates) {
  EXPECT_EQ(
      choose_codec(std::vector(kSparse.begin(), kSparse.begin() + 2), both_ways(1e8), "").reason,
      "fastest of gaps 0.48 s (encode 0.2, upload 0.24, download 0.24, apply 0.1), tight "
      "0.95 s (encode 0.5, upload 0.053, download 0.053, apply 0.45); upload 100 MB/s "
      "(measured), download 100 MB/s (assumed the same)");
}

TEST(CodecRates, WithoutMeasurementsTheStoreDecides) {
  const CodecRates rates;
  EXPECT_EQ(rates.link(true).up.bytes_per_second, 1e9);
  EXPECT_EQ(rates.link(false).up.bytes_per_second, 1e8);
  EXPECT_EQ(rates.link(false).up.source, "assumed, nothing was uploaded yet");
  EXPECT_EQ(rates.overhead(), 0);
  EXPECT_EQ(choice(kSparse, rates.link(true)), "gaps");
}

TEST(CodecRates, MeasurementsCountByTheirBytesAndOldOnesFade) {
  CodecRates rates;
  rates.learn_upload(100e6, 1);
  EXPECT_EQ(rates.link(true).up.bytes_per_second, 100e6);
  EXPECT_EQ(rates.link(true).up.source, "measured");
  EXPECT_EQ(rates.link(true).down.source, "assumed the same");
  rates.learn_upload(1e6, 0.1);  // ten times slower, but little of it
  EXPECT_NEAR(rates.link(true).up.bytes_per_second, 51e6 / 0.6, 1);
  for (int i = 0; i < 20; ++i) rates.learn_upload(1e6, 0.1);
  EXPECT_NEAR(rates.link(true).up.bytes_per_second, 10e6, 1e4);
}

TEST(CodecRates, WhatCannotBeIsNotLearned) {
  CodecRates rates;
  rates.learn_upload(0, 1);
  rates.learn_upload(1, 0);
  rates.learn_upload(-1, 1);
  rates.learn_upload(1, INFINITY);
  rates.learn_encode(0, 1, 2);
  rates.learn_encode(1, 0, 1);
  rates.learn_encode(1, 1, NAN);
  EXPECT_EQ(rates.to_text(), CodecRates().to_text());
  rates.learn_encode(1e6, 1, 1e9);  // a machine that slept
  EXPECT_EQ(rates.overhead(), 1e-7);
}

TEST(CodecRates, WhatASampleDoesNotSeeIsLearnedByTheByte) {
  CodecRates rates;
  rates.learn_encode(1e9, 2, 3);
  EXPECT_DOUBLE_EQ(rates.overhead(), 1e-9);
  rates.learn_encode(1e9, 2, 5);
  EXPECT_DOUBLE_EQ(rates.overhead(), 2e-9);
  rates.learn_encode(1e9, 2, 1);  // quicker than promised: there is none
  EXPECT_DOUBLE_EQ(rates.overhead(), 1e-9);
}

TEST(CodecRates, WhatReplicasSayReplacesTheAssumption) {
  CodecRates rates;
  rates.learn_download(0, 3);
  rates.learn_download(1e6, 0);
  EXPECT_EQ(rates.link(true).down.source, "assumed the same");
  rates.learn_download(2e6, 3);
  EXPECT_EQ(rates.link(true).down.bytes_per_second, 2e6);
  EXPECT_EQ(rates.link(true).down.source, "middle of 3 replicas");
  EXPECT_EQ(choice(kSparse, rates.link(true)), "tight");  // though its own link is quick
  rates.learn_download(3e6, 1);
  EXPECT_EQ(rates.link(true).down.source, "measured by a replica");
}

TEST(CodecRates, AreKeptInAFolder) {
  const testing::TempFolder folder;
  CodecRates rates;
  rates.learn_upload(5e6, 0.25);
  rates.learn_encode(1e9, 1, 1.5);
  rates.learn_choice("tight");
  rates.learn_download(4e6, 2);
  rates.save(folder.path() / "snapshot");
  const CodecRates again = CodecRates::load(folder.path() / "snapshot");
  EXPECT_EQ(again.to_text(), rates.to_text());
  EXPECT_EQ(again.last_codec(), "tight");
  EXPECT_EQ(CodecRates::load(folder.path() / "nothing").to_text(), CodecRates().to_text());
}

TEST(CodecRates, TextThatMakesNoSenseIsNothingLearned) {
  const std::string nothing = CodecRates().to_text();
  for (const char* text :
       {"", "{", "[]", "null", "{\"format\":\"rates/2\",\"uploaded_bytes\":1,\"upload_seconds\":1}",
        "{\"format\":1}", "{\"format\":\"rates/1\",\"uploaded_bytes\":\"1\",\"upload_seconds\":[]}",
        "{\"format\":\"rates/1\",\"uploaded_bytes\":1,\"upload_seconds\":0}",
        "{\"format\":\"rates/1\",\"download_rate\":1,\"replicas\":-1}",
        "{\"format\":\"rates/1\",\"overhead\":[1],\"codec\":7}",
        "{\"format\":\"rates/1\",\"overhead\":\"x\"}"}) {
    EXPECT_EQ(CodecRates::of_text(text).to_text(), nothing) << text;
  }
}

TEST(CodecSample, GrowsToTheVersionAndIsCorrectedByWhatWasLearned) {
  CodecSample sample;
  sample.threads = 4;
  sample.codecs = {{"tight", 0.08, 0.04, 3}, {"gaps", 0.02, 0.01, 9}};
  CodecRates rates;
  rates.learn_encode(1e9, 1, 2);
  sample.weights_bytes = 1e9;
  sample.sampled_bytes = 1e7;
  const std::vector<CodecForecast> forecasts = forecast_codecs(sample, rates);
  ASSERT_EQ(forecasts.size(), 2U);
  EXPECT_DOUBLE_EQ(forecasts[0].encode_seconds, 2 + 1);
  EXPECT_DOUBLE_EQ(forecasts[0].apply_seconds, 1);
  EXPECT_DOUBLE_EQ(forecasts[0].bytes, 300);
  EXPECT_DOUBLE_EQ(forecasts[1].encode_seconds, 0.5 + 1);
  EXPECT_TRUE(forecast_codecs({}, rates).empty());
}

}  // namespace
}  // namespace deltawire
