// Measures the rate of the input pipeline.
//
//   input_pipeline_bench decode FOLDER [THREADS]    pictures of a folder of JPEG files, beside what
//                                                   libjpeg-turbo alone decodes of them; in turns
//   input_pipeline_bench augment FOLDER [THREADS]   the same and random_resized_crop to 224,
//                                                   random_horizontal_flip, color_jitter, normalize
//   input_pipeline_bench memory                     examples of 28 x 28 bytes and a label in memory
//
// FOLDER has a folder for each class, as image_folder reads it; the files are in the page cache.
// bench/input_pipeline.py draws one and compares `augment` with torchvision.
#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <thread>
#include <vector>
// libjpeg's header needs FILE and size_t declared.
#include <jpeglib.h>

#include "common/base/clock.h"
#include "common/data/job/job_datasets.h"
#include "common/data/pipeline.h"
#include "common/data/readers/image_folder.h"

namespace muster {
namespace {

constexpr int kRounds = 7;
constexpr double kTurnSeconds = 1.5;
constexpr int64_t kBatch = 32;

[[noreturn]] void Exit(const std::string& why) {
  fmt::print(stderr, "input_pipeline_bench: {}\n", why);
  std::exit(1);
}

template <typename T>
T Value(absl::StatusOr<T> value) {
  if (!value.ok()) Exit(std::string(Message(value.status())));
  return *std::move(value);
}

// ---- libjpeg-turbo alone

// Into one buffer, again and again.
void DecodeAlone(const std::string& bytes, std::vector<uint8_t>* pixels) {
  jpeg_decompress_struct jpeg{};
  jpeg_error_mgr errors;
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&jpeg);
  jpeg_mem_src(&jpeg, reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  jpeg_read_header(&jpeg, TRUE);
  jpeg.out_color_space = JCS_RGB;
  jpeg_start_decompress(&jpeg);
  const size_t stride = size_t{jpeg.output_width} * 3;
  pixels->resize(stride * jpeg.output_height);
  while (jpeg.output_scanline < jpeg.output_height) {
    JSAMPROW row = pixels->data() + jpeg.output_scanline * stride;
    jpeg_read_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_decompress(&jpeg);
  jpeg_destroy_decompress(&jpeg);
}

std::vector<std::string> ReadFiles(const std::string& folder) {
  const auto found = Value(data::ListImageFolder(folder, /*mixed=*/true));
  std::vector<std::string> files;
  for (const auto& file : found.files) {
    std::ifstream in(folder + "/" + file.path, std::ios::binary);
    files.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    if (!files.back().starts_with("\xff\xd8")) Exit(file.path + " is no JPEG file");
  }
  return files;
}

// Pictures a second of so many threads, each with its own part of the files.
double RateAlone(const std::vector<std::string>& files, int threads) {
  std::vector<int64_t> decoded(threads, 0);
  std::vector<std::thread> running;
  const auto start = Clock::now();
  for (int t = 0; t < threads; ++t) {
    running.emplace_back([&, t] {
      std::vector<uint8_t> pixels;
      for (size_t i = t; Seconds(Clock::now() - start) < kTurnSeconds; i += threads) {
        DecodeAlone(files[i % files.size()], &pixels);
        ++decoded[t];
      }
    });
  }
  for (std::thread& thread : running) thread.join();
  int64_t all = 0;
  for (const int64_t count : decoded) all += count;
  return static_cast<double>(all) / Seconds(Clock::now() - start);
}

// ---- The pipeline

data::DatasetPtr OpenFolder(const std::string& folder, const Json& transforms) {
  const Json data = {
      {"train", {{"format", "image_folder"}, {"path", folder}, {"transforms", transforms}}}};
  return Value(Value(data::JobDatasets::Make(data, "."))->Open(Split::kTrain)).dataset;
}

// Returns the rate at which a new pipeline delivers batches of the dataset during `seconds`. Each
// call makes a pipeline, as an epoch does, because an older pipeline has batches ready.
double RateOf(const data::DatasetPtr& dataset, int64_t batch, int threads, double seconds) {
  const auto pipeline = data::Pipeline::Make(
      dataset, data::Sampler(dataset->size(), batch, /*drop_remainder=*/true), {0, 0}, 0, 1, 1,
      {.threads = threads, .prefetch = 2 * threads, .seed = 1});
  for (int i = 0; i < 4 * threads; ++i) (void)Value(pipeline->Next(0));
  int64_t examples = 0;
  const auto start = Clock::now();
  while (Seconds(Clock::now() - start) < seconds) examples += Value(pipeline->Next(0)).local.size();
  return static_cast<double>(examples) / Seconds(Clock::now() - start);
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

void Decode(const std::string& folder, int threads) {
  const std::vector<std::string> files = ReadFiles(folder);
  const data::DatasetPtr dataset = OpenFolder(folder, Json::array());
  std::vector<double> alone, ours, ratios;
  for (int round = 0; round < kRounds; ++round) {
    alone.push_back(RateAlone(files, threads));
    ours.push_back(RateOf(dataset, kBatch, threads, kTurnSeconds));
    ratios.push_back(ours.back() / alone.back());
  }
  fmt::print("libjpeg-turbo alone, {} threads:  {:8.0f} pictures/s\n", threads, Median(alone));
  fmt::print("the pipeline, {} threads:         {:8.0f} pictures/s, {:.3f} of it\n", threads,
             Median(ours), Median(ratios));
}

void Augment(const std::string& folder, int threads) {
  const Json transforms = Json::array(
      {{{"name", "random_resized_crop"}, {"size", 224}},
       {{"name", "random_horizontal_flip"}},
       {{"name", "color_jitter"},
        {"brightness", 0.4},
        {"contrast", 0.4},
        {"saturation", 0.4},
        {"hue", 0.1}},
       {{"name", "normalize"}, {"mean", {0.485, 0.456, 0.406}}, {"std", {0.229, 0.224, 0.225}}}});
  fmt::print("{:.1f} pictures/s\n",
             RateOf(OpenFolder(folder, transforms), kBatch, threads, 2 * kTurnSeconds));
}

void Memory() {
  constexpr int64_t kExamples = 60'000;
  const data::DatasetPtr dataset = Value(data::FromTensors(
      {at::zeros({kExamples, 28, 28}, at::kByte), at::zeros({kExamples}, at::kLong)}));
  const data::DatasetPtr shuffled = data::Shuffle(dataset);
  for (const int64_t batch : {64, 512}) {
    for (const int threads : {0, 1}) {
      std::vector<double> in_order, mixed;
      for (int round = 0; round < kRounds; ++round) {
        in_order.push_back(1e9 / RateOf(dataset, batch, threads, 0.5));
        mixed.push_back(1e9 / RateOf(shuffled, batch, threads, 0.5));
      }
      fmt::print("batches of {:3}, {}: {:5.0f} ns an example, shuffled {:5.0f} ns\n", batch,
                 threads == 0 ? "no thread of its own" : "1 thread            ", Median(in_order),
                 Median(mixed));
    }
  }
}

int Run(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  const int threads = argc > 3 ? std::atoi(argv[3]) : 2;
  if (what == "memory" && argc == 2) {
    Memory();
  } else if (what == "decode" && argc > 2 && threads > 0) {
    Decode(argv[2], threads);
  } else if (what == "augment" && argc > 2 && threads > 0) {
    Augment(argv[2], threads);
  } else {
    Exit("usage: input_pipeline_bench decode|augment FOLDER [THREADS], or memory");
  }
  return 0;
}

}  // namespace
}  // namespace muster

int main(int argc, char** argv) { return muster::Run(argc, argv); }
