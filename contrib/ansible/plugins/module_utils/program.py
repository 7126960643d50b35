# -*- coding: utf-8 -*-
# Copyright (c) the hugeleaf developers
# SPDX-License-Identifier: MIT OR Apache-2.0

"""Runs the program hugeleaf and turns its JSON into results of modules.

The program makes and checks all changes. `changed` and the differences follow from the steps that it reports.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from contextlib import contextmanager

# The schema of the JSON that these functions read.
SCHEMA = 2
# States of a step that has changed the host, or would.
CHANGED = frozenset(('would-change', 'done', 'differs', 'begun', 'restored'))
# States of a step that has changed the host only if its `before` and `after` differ.
INCOMPLETE = frozenset(('short', 'in-use'))
# Keys of a plan that describe the host at the time of planning, or explain. They differ between two plans that reserve
# the same pages for the same services.
VOLATILE = frozenset((
    'made', 'notes', 'kernel', 'memory_bytes', 'used_bytes', 'to_pools_bytes', 'other_pools_bytes', 'margin_bytes',
    'runs', 'restart', 'ways', 'what', 'source', 'mappings', 'was', 'was_bytes', 'others', 'idle', 'why', 'risk',
))


class Answer:
    """The result of one run of the program."""

    def __init__(self, status, values, errors):
        self.status = status
        self.values = values
        self.errors = errors

    @property
    def steps(self):
        return self.values.get('steps') or []


class Program:
    """The program on this host, as a module runs it."""

    def __init__(self, module):
        self.module = module
        # Steps of earlier runs of this module, which count if a later run fails.
        self.earlier = []
        # True if the module has changed something itself.
        self.has_changed = False
        name = module.params['program']
        if '/' in name:
            self.path = name
        else:
            self.path = module.get_bin_path(name, required=False, opt_dirs=['/usr/local/bin', '/usr/bin'])
        if self.path is None:
            module.fail_json(msg='%s is not installed on this host: not in PATH, /usr/local/bin or /usr/bin. Next: '
                                 'install it (hugeleaf_state: present), or set program' % name)

    def ask(self, arguments, accepted=(0, 1), names=None):
        """Runs a command with --json. Ends the module if the program fails with another status than the accepted ones.

        `names` are paths that errors show in place of those in the command.
        """
        command = [self.path, arguments[0], '--json'] + list(arguments[1:])
        environment = {'LC_ALL': 'C', 'NO_COLOR': '1'}
        status, output, errors = self.module.run_command(command, environ_update=environment)
        for path, shown in (names or {}).items():
            errors = errors.replace(path, shown)
        answer = Answer(status, {}, error_text(errors))
        unread = 'nothing'
        if output.strip():
            try:
                answer.values = json.loads(output)
            except ValueError as error:
                unread = str(error)
            if not isinstance(answer.values, dict):
                answer.values, unread = {}, 'no object'
        if status not in accepted:
            self.fail(answer, answer.errors or '%s %s ended with status %s' % (self.path, arguments[0], status))
        if not answer.values:
            self.fail(answer, '%s %s printed no JSON (%s). Next: run it by hand with --json'
                      % (self.path, arguments[0], unread))
        found = answer.values.get('schema')
        if found != SCHEMA:
            self.fail(answer, '%s prints JSON of schema %s, and this collection reads schema %s. Next: install the '
                              'collection of the same release as the program' % (self.path, found, SCHEMA))
        return answer

    def fail(self, answer, message, **more):
        """Ends the module. Steps that were made before the failure count as changes."""
        result = dict(result_of(self.earlier + answer.steps), status=answer.status)
        if answer.values.get('dry_run'):
            result['changed'] = False
        result['changed'] = result['changed'] or self.has_changed
        result.update(more)
        self.module.fail_json(msg=message, **result)


def error_text(text):
    """Returns the two lines of an error as one text, without the prefix `hugeleaf: `."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    lines = [re.sub(r'^hugeleaf: ', '', line) for line in lines]
    lines = [re.sub(r'^next: ', 'Next: ', line) for line in lines]
    return '. '.join(line.rstrip('.') for line in lines)


def is_change(step):
    state = step.get('state')
    if state in INCOMPLETE:
        return step.get('before') != step.get('after')
    return state in CHANGED


def result_of(steps):
    """Returns the part of a module's result that follows from the steps."""
    changes = [step for step in steps if is_change(step)]
    return {
        'changed': bool(changes),
        'steps': steps,
        'diff': [difference(step) for step in changes],
        'restart': restarts(changes),
    }


def difference(step):
    header = '%s (%s)' % (step.get('path', ''), step.get('id', ''))
    after = lines_of(step.get('after'))
    if 'apply' in step and step.get('state') == 'would-change' and not after:
        # A dry run of undo states no result.
        after = 'the state before apply %s\n' % step['apply']
    return {'before_header': header, 'after_header': header, 'before': lines_of(step.get('before')), 'after': after}


def lines_of(state):
    """Returns a state as lines: a file's content as it is, a number or a value on a line, nothing as no line."""
    if state is None:
        return ''
    text = state if isinstance(state, str) else json.dumps(state, sort_keys=True)
    return text if text.endswith('\n') else text + '\n'


def restarts(steps):
    """Returns the services that see a change only after a restart, each once."""
    names = []
    for step in steps:
        names.extend((step.get('needs') or {}).get('restart') or [])
    return sorted(set(names))


def shortages(steps):
    """Returns a sentence for each step that ended with less than planned."""
    sentences = []
    for step in steps:
        short = step.get('shortage')
        if short:
            sentences.append('%s: got %s of %s pages, %s are missing'
                             % (step['id'], short.get('got'), short.get('wanted'), short.get('missing')))
        elif step.get('state') in ('in-use', 'differs', 'failed', 'not-reached'):
            note = step.get('note')
            sentences.append('%s: %s%s' % (step['id'], step['state'], ' (%s)' % note if note else ''))
    return sentences


def purpose(text):
    """Returns the lines of a plan that reserve pages for services, without comments and VOLATILE keys."""
    lines = []
    in_list = False
    for line in text.splitlines():
        line = line.strip()
        if in_list:
            in_list = line != ']'
            continue
        key, dummy, value = line.partition('=')
        if key.strip() in VOLATILE:
            # hugeleaf plan writes the elements of a longer list on lines of their own.
            in_list = value.strip() == '['
        elif line and not line.startswith('#'):
            lines.append(re.sub(r'\s+# [^"]*$', '', line))
    return lines


def read_plan(module, path):
    """Returns the text of a plan file, or None if there is none. Ends the module if the file cannot be read."""
    try:
        with open(path, encoding='utf-8') as file:
            return file.read()
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        module.fail_json(msg='%s cannot be read: %s. Next: remove it, or name another file in plan' % (path, error))


@contextmanager
def draft_path(module):
    """Provides a path for a new plan in a temporary directory that only this user can change."""
    folder = tempfile.mkdtemp(dir=module.tmpdir)
    try:
        yield os.path.join(folder, 'plan.toml')
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def arguments_of(more):
    """Returns the arguments of each module of this collection, with those of one module."""
    return dict({'program': {'type': 'str', 'default': 'hugeleaf'}}, **more)
