// The last tasks as a table. Rows are keyed by id, so that a refresh keeps the focus and the scroll
// position. Every value is rendered as text.
export default {
  props: { columns: Object, rows: Array },
  emits: ["choose"],
  template: `
    <table class="tasks">
      <thead>
        <tr><th v-for="(label, name) in columns" :key="name" scope="col" :class="'c-' + name">{{ label }}</th></tr>
      </thead>
      <tbody>
        <tr v-for="row in rows" :key="row.id" @click="$emit('choose', row.id)">
          <td v-for="(label, name) in columns" :key="name" :class="'c-' + name" :title="row[name]">
            <span v-if="name === 'status'" class="status" :class="row.status">{{ row.status }}</span>
            <button v-else-if="name === 'name'" type="button" class="open">{{ row.name }}</button>
            <template v-else>{{ row[name] }}</template>
          </td>
        </tr>
      </tbody>
    </table>`,
};
