"""A real browser (Debian's chromium) for the tests of the site, controlled by the protocol of its driver."""

# SPDX-License-Identifier: Apache-2.0

import base64
import json
import subprocess
import time
import urllib.request

OPTIONS = {"args": ["--headless", "--no-sandbox", "--disable-gpu", "--window-size=1200,900"]}


class Browser:
    def __init__(self, port):
        self.server = f"http://127.0.0.1:{port}"
        self.driver = subprocess.Popen(["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while self.driver.poll() is None:
            try:
                self.ask("GET", "/status")
                break
            except OSError:
                time.sleep(0.1)
        always = {"alwaysMatch": {"goog:chromeOptions": OPTIONS}}
        self.session = "/session/" + self.ask("POST", "/session", {"capabilities": always})["sessionId"]

    def ask(self, method, path, content=None):
        data = None if content is None else json.dumps(content).encode()
        with urllib.request.urlopen(urllib.request.Request(self.server + path, data, method=method)) as answer:
            return json.load(answer)["value"]

    def open(self, address):
        self.ask("POST", self.session + "/url", {"url": address})

    def run(self, script):
        """Runs JavaScript in the page and returns its result."""
        return self.ask("POST", self.session + "/execute/sync", {"script": script, "args": []})

    def be_as_wide_as(self, width):
        size = {"width": width, "height": 720, "deviceScaleFactor": 1, "mobile": True}
        self.ask("POST", self.session + "/goog/cdp/execute", {"cmd": "Emulation.setDeviceMetricsOverride", "params": size})

    def take_picture(self, path):
        path.write_bytes(base64.b64decode(self.ask("GET", self.session + "/screenshot")))

    def close(self):
        self.ask("DELETE", self.session)
        self.driver.terminate()
        self.driver.wait()
