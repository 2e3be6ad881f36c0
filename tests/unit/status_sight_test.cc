// The lines of JSON that a looking step prints, and texts of other processes that are no such lines.
// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "core/util/text.h"
#include "tools/status/flat_json.h"
#include "tools/status/node_look.h"
#include "tools/status/sight.h"

namespace bootstrap {
namespace {

RankSight full_sight() {
  RankSight sight;
  sight.rank = 5;
  sight.local_rank = 1;
  sight.task = 5;
  sight.node = "node002";
  sight.pid = 4711;
  sight.program = "a \"b\" \\ \n\x1b[31m\xff";
  sight.is_launcher = true;
  sight.state = "S";
  sight.links = {"40000:29500", "40001:29500"};
  sight.listens = {29500, 1};
  sight.stack = {"* main (train.py:12)"};
  return sight;
}

TEST(StatusSight, TravelsWhole) {
  const auto sight = full_sight();
  EXPECT_EQ(read_rank_sight(write_sight(sight)), sight);
  NodeSight node;
  node.node = "node001";
  node.tasks = {0, 1, 2};
  node.ras = "line 1\nline 2";
  EXPECT_EQ(read_node_sight(write_sight(node)), node);
  EXPECT_EQ(read_rank_sight(write_sight(node)), std::nullopt);
  EXPECT_EQ(read_node_sight(write_sight(sight)), std::nullopt);
}

TEST(StatusSight, IsRefusedWhenItIsCutAnywhere) {
  const auto line = write_sight(full_sight());
  for (std::size_t size = 0; size < line.size(); ++size) EXPECT_EQ(read_rank_sight(line.substr(0, size)), std::nullopt);
}

TEST(StatusSight, IsRefusedWithANumberThatIsNoRank) {
  auto line = write_sight(full_sight());
  line.replace(line.find("\"rank\": 5"), 9, "\"rank\": 4294967295");
  EXPECT_EQ(read_rank_sight(line), std::nullopt);
}

TEST(StatusSight, HostileTextIsNoObject) {
  const std::string deep(100000, '[');
  const std::string huge = "{\"a\": \"" + std::string(kMaxJsonLine, 'x') + "\"}";
  for (const std::string text :
       {"", "{", "{}}", "[]", "{\"a\"}", "{\"a\": }", "{\"a\": -1}", "{\"a\": 1e9}", "{\"a\": 99999999999999999999}",
        "{\"a\": {\"b\": 1}}", "{\"a\": [[1]]}", "{\"a\": [1, \"b\"]}", "{\"a\": \"\\u12\"}", "{\"a\": \"\\x\"}",
        "{\"a\": \"\n\"}", "{\"a\": nul}", "null", "{\"a\": 1,}"}) {
    EXPECT_EQ(read_flat_json(text), std::nullopt) << text;
  }
  EXPECT_EQ(read_flat_json(deep), std::nullopt);
  EXPECT_EQ(read_flat_json("{\"a\": " + deep), std::nullopt);
  EXPECT_EQ(read_flat_json(huge), std::nullopt);
  EXPECT_EQ(read_flat_json(std::string("{\"a\": \"\0\"}", 10)), std::nullopt);
}

TEST(StatusSight, ReadsEscapes) {
  const auto object = read_flat_json(R"( {"a": "\u00e9\u20ac\n\"\/", "b": true, "c": [ ], "d": [1,2]} )");
  ASSERT_TRUE(object);
  EXPECT_EQ(std::get<std::string>(object->at("a")), "\xe9?\n\"/");
  EXPECT_EQ(std::get<std::uint64_t>(object->at("b")), 1U);
  EXPECT_EQ(std::get<std::vector<std::uint64_t>>(object->at("d")), (std::vector<std::uint64_t>{1, 2}));
}

TEST(StatusSight, PiecesOfTwoNodesMayMix) {
  const std::string one(2000, 'a');
  const std::string other(1700, 'b');
  const auto first = frame_line("node001", 0, one);
  const auto second = frame_line("node002", 0, other);
  FrameJoiner joiner;
  std::vector<std::string> whole;
  const auto left = split(first, '\n');
  const auto right = split(second, '\n');
  for (std::size_t i = 0; i < left.size(); ++i) {
    for (const auto piece : {left[i], right[i]}) {
      EXPECT_LT(piece.size(), 1000U);
      if (auto line = joiner.add(piece)) whole.push_back(*line);
    }
  }
  EXPECT_EQ(whole, (std::vector<std::string>{one, other}));
}

TEST(StatusSight, OtherLinesAreNoPieces) {
  FrameJoiner joiner;
  for (const auto* const line : {"", "srun: error: x", "status", "status a", "status a 1 x {", "status a 1",
                                 "status  1 .", "status node001 0 +"}) {
    EXPECT_EQ(joiner.add(line), std::nullopt) << line;
  }
  // A line without an end does not grow beyond the largest line.
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(joiner.add("status n 0 + " + std::string(800, 'x')), std::nullopt);
  EXPECT_LE(joiner.add("status n 0 . x")->size(), kMaxJsonLine);
}

TEST(StatusSight, ListOfTasks) {
  const NodeLook look{.job = "12", .step = "0", .first_rank = 8, .asks_ras = false, .scontrol = {}, .py_spy = {}};
  const auto tasks = parse_task_list(
      "PID      JOBID    STEPID   LOCALID GLOBALID\n"
      "314      12       0        0       2\n"
      "316      12       0        1       3\n"
      "319      12       0        -       -\n"
      "320      13       0        0       0\n"
      "x        12       0        0       0\n"
      "320      12       0        0\n",
      look, "node001");
  ASSERT_EQ(tasks.size(), 2U);
  EXPECT_EQ(tasks[1].pid, 316U);
  EXPECT_EQ(tasks[1].rank, 11U);
  EXPECT_EQ(tasks[1].local_rank, 1U);
  EXPECT_EQ(tasks[1].node, "node001");
}

}  // namespace
}  // namespace bootstrap
