#include "deploy/report/page.h"

#include <gmock/gmock.h>

#include <cmath>

#include "deploy/report/table.h"
#include "tests/unit/report/runs.h"

namespace muster::report {
namespace {

using testing::HasSubstr;
using testing::Not;

class PageTest : public RunsTest {
 protected:
  std::vector<report::Run> Read(const std::vector<std::string>& names) {
    std::vector<report::Run> runs;
    for (const std::string& name : names) {
      auto run = ReadModelDir(top_ + "/" + name);
      EXPECT_TRUE(run.ok()) << Message(run.status());
      if (run.ok()) runs.push_back(*std::move(run));
    }
    EXPECT_TRUE(NameRuns(&runs).ok());
    return runs;
  }
};

TEST_F(PageTest, TheTableHasTheNumbersOfTheResult) {
  WriteRun("a");
  const OrderedJson table = TableJson(Read({"a"}), 3.0);
  const OrderedJson& row = table["runs"][0];
  EXPECT_EQ(table["price_per_hour"], 3.0);
  EXPECT_EQ(row["status"], "completed");
  EXPECT_EQ(row["program"], "linear");
  EXPECT_EQ(row["metrics"]["test"]["accuracy"], 0.875);
  EXPECT_EQ(row["examples_per_second"], 1234.4);
  EXPECT_NEAR(row["cost"].get<double>(), 3.0 * 2 * 90 / 3600, 0.01);
  EXPECT_TRUE(row["epochs"].is_null());
  const std::string html = TableHtml(table);
  EXPECT_THAT(html, HasSubstr(">test accuracy</th>"));
  EXPECT_THAT(html, HasSubstr("<td class=\"n\">0.875</td>"));
  EXPECT_THAT(html, HasSubstr("<td class=\"n\">not finite</td>"));  // test loss
  EXPECT_THAT(html, HasSubstr("A &lt;fast&gt; CPU, 2 cores, 1 GiB"));
  EXPECT_THAT(html, Not(HasSubstr(">epochs<")));  // No run has it.
}

TEST_F(PageTest, APartialRunHasWhatItsEventsSay) {
  WriteCurve("a/train", "loss", {{10, 4}, {20, 2}});
  WriteCurve("a/validation", "epoch_accuracy", {{10, 0.25}, {20, 0.5}});
  const OrderedJson row = TableJson(Read({"a"}), 3.0)["runs"][0];
  EXPECT_EQ(row["status"], "no result");
  EXPECT_EQ(row["steps"], 20);
  EXPECT_EQ(row["metrics"]["validation"]["accuracy"], 0.5);
  EXPECT_TRUE(row["cost"].is_null());  // The number of members is unknown.
}

TEST_F(PageTest, FieldsOfAnotherTypeAreEmpty) {
  WriteRun("a");
  Write("a/result.json", R"({"status": 7, "steps": "x", "metrics": {"test": 3, "eval": {"a": []}},
        "hardware": [], "recovery": 4, "step_seconds": [], "wall_seconds": null, "cause": {},
        "world_size": 1e300, "versions": "none"})");
  Write("a/job.json", R"({"program": ["x"], "global_batch_size": {}})");
  const std::vector<report::Run> runs = Read({"a"});
  const OrderedJson row = TableJson(runs, 1.0)["runs"][0];
  EXPECT_EQ(row["status"], "no result");
  EXPECT_TRUE(row["world_size"].is_null());
  EXPECT_THAT(Page(runs, 1.0), HasSubstr("</html>"));
}

TEST_F(PageTest, NumbersMayBeOfAnySize) {
  WriteRun("a");
  Write("a/result.json", R"({"steps": 1e300, "wall_seconds": 1e300, "world_size": -7,
        "examples_per_second": 1e300, "step_seconds": {"compute": -1e300, "wait": 1e300},
        "recovery": {"losses": 1e300, "seconds_lost": 1e300, "last_losses": [{"step": 1e300,
        "seconds": -1e300, "cause": "x"}]}, "hardware": {"cores": 1e300, "memory_bytes": -1}})");
  const std::vector<report::Run> runs = Read({"a"});
  EXPECT_TRUE(TableJson(runs, 1.0)["runs"][0]["steps"].is_null());
  EXPECT_THAT(Page(runs, 1e300), HasSubstr("</html>"));
}

TEST_F(PageTest, WallTimesMayBeWrong) {
  WriteRun("a");
  for (const double wall : {1e300, -5.0, std::nan("")}) {
    std::vector<report::Run> runs = Read({"a"});
    runs[0].began = wall;
    for (auto& point : runs[0].folders["train"].scalars["loss"]) point.wall = wall;
    EXPECT_THAT(Page(runs, 1.0), HasSubstr("</html>")) << wall;
  }
}

TEST_F(PageTest, NothingOfARunIsMarkup) {
  const std::string evil = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'";
  const std::string name = "a<b onload=x>\"&'";
  WriteRun(name);
  Json result = Result();
  result["status"] = result["cause"] = evil;
  result["hardware"]["cpu"] = evil;
  result["metrics"]["test"] = {{evil, 1.0}};
  result["recovery"] = {{"last_losses", {{{"step", 1}, {"seconds", 1}, {"cause", evil}}}}};
  Write(name + "/result.json", Dump(result));
  Write(name + "/job.json", Dump(Json{{"program", evil}, {evil, evil}}));
  WriteCurve(name + "/train", evil, {{1, 1}});
  WriteCurve(name + "/<i>x", "loss", {{1, 1}});
  WriteRun("other");
  const std::string page = Page(Read({name, "other"}), 2.0);
  for (const char* markup : {"<script>alert", "<img src=x", "<b onload", "<i>x"})
    EXPECT_THAT(page, Not(HasSubstr(markup)));
  size_t scripts = 0;
  for (size_t at = page.find("<script"); at != std::string::npos; at = page.find("<script", at + 1))
    ++scripts;
  EXPECT_EQ(scripts, 2u);
}

TEST_F(PageTest, ShowsPicturesOfPassesWithinTheirLimit) {
  WriteRun("a");
  auto writer = summary::EventWriter::Open(top_ + "/a/test");
  ASSERT_TRUE(writer.ok());
  std::vector<uint8_t> noise(size_t{40} * 64 * 64);
  uint32_t state = 1;
  for (uint8_t& pixel : noise)
    pixel = static_cast<uint8_t>((state = state * 1664525 + 1013904223) >> 24);
  ASSERT_TRUE((*writer)
                  ->Images(3, "input",
                           {.count = 40, .height = 64, .width = 64, .channels = 1, .pixels = noise})
                  .ok());
  ASSERT_TRUE((*writer)->Flush().ok());
  const std::string page = Page(Read({"a"}), std::nullopt);
  size_t pictures = 0;
  for (size_t at = page.find("data:image/png;base64,iVBOR"); at != std::string::npos;
       at = page.find("data:image/png;base64,iVBOR", at + 1))
    ++pictures;
  EXPECT_EQ(pictures, kMaxPictures);
  EXPECT_THAT(page, HasSubstr("test input, step 3, 24 more not shown"));
}

TEST_F(PageTest, HasNoReferenceToAnythingOutside) {
  WriteRun("a");
  const std::string page = Page(Read({"a"}), std::nullopt);
  for (const char* outside : {"src=\"http", "href=", "url(http", "@import", "//cdn", "fetch("})
    EXPECT_THAT(page, Not(HasSubstr(outside)));
  EXPECT_THAT(page, HasSubstr("default-src &#39;none&#39;"));
  EXPECT_LT(page.size(), 60'000u);
}

TEST_F(PageTest, DifferencesBetweenJobs) {
  WriteRun("a");
  WriteRun("b");
  EXPECT_EQ(JobsHtml(Read({"a", "b"})), "");
  Write("b/job.json", R"({"program": "linear", "global_batch_size": 5, "data": {"x": {"y": 2}}})");
  const std::string html = JobsHtml(Read({"a", "b"}));
  EXPECT_THAT(html, HasSubstr("<th scope=\"row\">data.x.y</th><td>–</td><td>2</td>"));
  EXPECT_THAT(html, HasSubstr("<th scope=\"row\">seed</th><td>7</td><td>–</td>"));
  EXPECT_THAT(html, Not(HasSubstr("program")));
}

}  // namespace
}  // namespace muster::report
